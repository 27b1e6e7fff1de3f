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
    [row] = law().probabilities(PROMPT, [()], params)
    assert row == pytest.approx(expected, abs=1e-4)


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
    assert law(**changes).probabilities(PROMPT, [()], params) == [None]


def test_unknown_prefixes_have_no_probabilities() -> None:
    assert law().probabilities(PROMPT, [(1,)], {}) == [None]
    assert (PROMPT, ()) in law()
    assert (PROMPT, (1,)) not in law()
