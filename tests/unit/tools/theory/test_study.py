"""One cell: rows, the best K, and what bounds it."""

import json

import pytest

from vllm_spec_plugin.tools.theory.study import Best, study, to_json


def test_a_cell_has_a_row_for_each_draft_length_and_the_best_of_all() -> None:
    cell = study(0.5, 0.1, [1, 3])
    assert [row.draft_length for row in cell.rows] == [1, 3]
    row = cell.rows[1]
    assert (row.expected_tokens, row.speedup) == pytest.approx((1.875, 1.875 / 1.3))
    assert row.operations == pytest.approx(4.3 / 1.875)
    assert row.speedup_verified is None
    assert cell.best.draft_length == 2
    assert cell.best.speedup == pytest.approx(1.75 / 1.2)
    assert cell.guaranteed_speedup == pytest.approx(1.5 / 1.1)
    assert cell.oracle_speedup == pytest.approx(1 / 0.55)
    assert cell.best_verified is None


def test_operations_have_a_ratio_of_their_own_if_it_is_given() -> None:
    assert study(0.5, 0.1, [1]).operations_ratio == 0.1
    assert study(0.5, 0.1, [1], operations_ratio=0.5).rows[0].operations == pytest.approx(2.5 / 1.5)


def test_verification_that_takes_time_is_counted_in_its_own_unit() -> None:
    cell = study(0.5, 0.1, [0, 1, 2], verify=[20, 22, 40, 41])
    assert [row.speedup_verified for row in cell.rows] == pytest.approx([1, 1.5 / 1.2, 1.75 / 2.2])
    assert cell.best_verified is not None
    assert cell.best_verified.draft_length == 1
    assert cell.best_verified.speedup == pytest.approx(1.25)


def test_where_longer_is_always_faster_the_limit_is_given() -> None:
    best = study(0.8, 0, [1]).best
    assert best.draft_length is None
    assert best.speedup == pytest.approx(5)
    assert study(1, 0.25, [1]).best == Best(None, 4)
    assert study(1, 0, [1]).best == Best(None, None)


def test_what_has_no_limit_is_null_in_json() -> None:
    data = json.loads(json.dumps(to_json([study(1, 0, [2])]), allow_nan=False))
    assert data[0]["best"] == {"draft_length": None, "speedup": None}
    assert data[0]["rows"] == [
        {"draft_length": 2, "expected_tokens": 3, "speedup": 3, "operations": 1, "speedup_verified": None}
    ]
