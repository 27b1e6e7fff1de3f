"""Greedy outputs against the reference's."""

from collections.abc import Callable

import pytest

from tests.unit.bench.cases import run
from vllm_spec_plugin.bench.agreement import Agreement, compare


def no_gap(text: list[int], candidates: list[int]) -> float:
    raise AssertionError("nothing to ask")


def outputs(ours: list[list[int]], theirs: list[list[int]], gap: Callable[[list[int], list[int]], float]) -> Agreement:
    runs = [
        run("plugin", [], batch=2, seconds=1, token_ids=ours),
        run("none", [], batch=2, seconds=1, token_ids=theirs),
    ]
    return compare(runs, "plugin", 2, "none", gap)


def test_equal_outputs_are_equal() -> None:
    assert outputs([[1, 2], [3]], [[1, 2], [3]], no_gap) == Agreement(2, 0, 0)


def test_the_two_tokens_are_weighed_after_the_text_that_both_share() -> None:
    asked = []

    def gap(text: list[int], candidates: list[int]) -> float:
        asked.append((text, candidates))
        return 0.0

    assert outputs([[1, 2, 5, 9], [3]], [[1, 2, 6, 8], [3]], gap) == Agreement(2, 1, 0)
    assert asked == [([7, 1, 2], [5, 6])]


@pytest.mark.parametrize(("distance", "expected"), [(1e-5, Agreement(2, 1, 0)), (0.5, Agreement(2, 0, 1))])
def test_tokens_that_are_not_equally_likely_are_wrong(distance: float, expected: Agreement) -> None:
    assert outputs([[1, 5], [3]], [[1, 6], [3]], lambda text, candidates: distance) == expected


def test_an_output_that_ends_early_is_wrong() -> None:
    assert outputs([[1], [3]], [[1, 2], [3]], no_gap) == Agreement(2, 0, 1)


def test_rounds_batches_and_temperatures_are_compared_with_their_own() -> None:
    runs = [
        run("plugin", [], seconds=1, token_ids=[[1]], number=0),
        run("none", [], seconds=1, token_ids=[[1]], number=0),
        run("none", [], seconds=1, token_ids=[[2]], number=1),
        run("none", [], seconds=1, token_ids=[[3]], temperature=1.0, number=0),
        run("none", [], seconds=1, token_ids=[[4], [4]], batch=2, number=0),
    ]
    assert compare(runs, "plugin", 1, "none", no_gap) == Agreement(1, 0, 0)
