"""Theorem 3.8 with measured costs: by hand, and where it comes to theorem 3.8 itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory import leviathan
from vllm_spec_tools.planner import generalised
from vllm_spec_tools.planner.generalised import StepCosts, conditional_rates


@given(st.floats(0, 1), st.integers(0, 20), st.floats(0, 2), st.floats(0.001, 1000))
def test_it_is_theorem_3_8_where_verifying_is_free_in_any_unit(rate: float, length: int, c: float, unit: float) -> None:
    costs = StepCosts([unit] * (length + 1), draft_token=c * unit)
    assert generalised.speedup([rate] * length, costs) == pytest.approx(leviathan.speedup(rate, length, c), rel=1e-12)


@pytest.mark.parametrize("rate", [0.1, 0.55, 0.83])
@pytest.mark.parametrize("cost", [0.03, 0.13, 0.41])
def test_so_is_the_best_draft_length(rate: float, cost: float) -> None:
    found = generalised.best_draft_length([rate] * 40, StepCosts([1.0] * 41, draft_token=cost))
    assert found == leviathan.best_draft_length(rate, cost)


def test_it_is_what_is_worked_out_by_hand_and_the_shortest_of_equals_is_best() -> None:
    costs = StepCosts([10, 11, 13], draft_token=0.5, draft_fixed=2)
    assert generalised.speedup([0.8, 0.5], costs) == pytest.approx(2.2 * 10 / 16)
    # A long draft may pay where a short one does not.
    assert generalised.best_draft_length([1.0] * 3, StepCosts([1, 2.5, 2.5, 2.5])) == 3
    assert generalised.best_draft_length([1.0, 1.0], StepCosts([1, 2, 3])) == 0


def test_counts_per_position_become_rates_that_give_the_same_tokens() -> None:
    rates = conditional_rates([0.8, 0.4, 0.1])
    assert rates == pytest.approx([0.8, 0.5, 0.25])
    assert generalised.expected_tokens(rates) == pytest.approx(2.3)
    assert conditional_rates([0.5, 0.0, 0.0]) == [0.5, 0.0, 0.0]
