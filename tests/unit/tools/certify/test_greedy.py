"""Comparing outputs at temperature 0."""

import pytest

from vllm_spec_tools.certify.greedy import first_differences

EXPECTED = [[5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("output", "logits", "position", "is_tie"),
    [
        ([5, 6, 9, 1], {7: 2.0, 9: 1.99995}, 2, True),
        ([5, 6, 9, 1], {7: 2.0, 9: 1.5}, 2, False),
        ([5, 6, 3, 1], {7: 2.0, 9: 1.99995, 3: 1.0}, 2, False),
        ([5, 6, 7], {8: 1.0, 2: 0.0}, 3, False),
        ([5, 6, 7, 8, 9], {}, 4, False),
    ],
    ids=["tie", "gap", "another token", "too short", "too long"],
)
def test_first_difference_is_a_tie_or_a_fault(
    output: list[int], logits: dict[int, float], position: int, is_tie: bool
) -> None:
    [difference] = first_differences([output], EXPECTED, lambda request, at: logits, 1e-4)
    assert (difference.position, difference.is_tie) == (position, is_tie)


def test_equal_outputs_have_no_difference() -> None:
    assert not first_differences(EXPECTED, EXPECTED, lambda request, at: {}, 1e-4)
