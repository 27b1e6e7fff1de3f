"""The target's probabilities, and where rounding leaves them open."""

from typing import Any

import numpy as np
import pytest

from vllm_spec_tools.certify.target_probabilities import TargetProbabilities

PROMPT = (3,)
LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))


def law(**changes: float) -> TargetProbabilities:
    row = LOGITS.copy()
    for token, logit in changes.items():
        row[int(token[1:])] = logit
    return TargetProbabilities({(PROMPT, ()): row}, 1e-3)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, [0.6849, 0.2466, 0.0616, 0.0068]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.7}, [0.625, 0.375, 0, 0]),
        ({"min_p": 0.2}, [0.5263, 0.3158, 0.1579, 0]),
        ({"logit_bias": {3: float(np.log(2))}}, [0.4762, 0.2857, 0.1429, 0.0952]),
    ],
)
def test_parameters_are_applied_to_the_logits(params: dict[str, Any], expected: list[float]) -> None:
    row = law().rows(PROMPT, params)[()]
    assert row.token_ids.tolist() == [i for i, p in enumerate(expected) if p]
    assert row.probs.tolist() == pytest.approx([p for p in expected if p], abs=1e-4)
    assert row.rest == 0
    assert [row.prob(i) or 0 for i in range(5)] == pytest.approx([*expected, 0], abs=1e-4)


@pytest.mark.parametrize(
    ("params", "changes"),
    [
        ({"top_k": 2}, {"t2": float(LOGITS[1]) - 1e-4}),
        ({"top_p": 0.65}, {"t2": float(LOGITS[1]) - 1e-4}),
        ({"top_p": 0.7999}, {}),
        ({"top_p": 0.8001}, {}),
        ({"min_p": 0.5999}, {}),
        ({"min_p": 0.6001}, {}),
    ],
)
def test_rows_in_which_rounding_decides_are_left_out(params: dict[str, Any], changes: dict[str, float]) -> None:
    """The third token is as likely as the second, or a bound is as near."""
    assert law(**changes).rows(PROMPT, params) == {}


def test_unlikely_tokens_are_one_unless_parameters_drop_some() -> None:
    unlikely = law(t3=float(np.log(1e-5)))
    row = unlikely.rows(PROMPT, {})[()]
    assert row.token_ids.tolist() == [0, 1, 2]
    assert row.rest == pytest.approx(1e-5 / 0.95001)
    assert row.prob(3) is None
    kept = unlikely.rows(PROMPT, {"top_k": 4})[()]
    assert kept.token_ids.tolist() == [0, 1, 2, 3]
    assert kept.rest == 0


def test_unknown_prefixes_have_no_probabilities() -> None:
    assert law().rows(PROMPT, {}).keys() == {()}
    assert law().rows((4,), {}) == {}


def test_each_setting_has_its_own_probabilities() -> None:
    same = law()
    first, second = (same.rows(PROMPT, {"temperature": t})[()].probs[0] for t in (1.0, 0.5))
    assert (first, second) == pytest.approx((0.5, 0.6849), abs=1e-4)
