"""The formulas of sections 3.1 to 3.5: by hand, by simulation, by brute force, and at their limits."""

import math
from decimal import Decimal, localcontext
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory.leviathan import (
    best_draft_length,
    expected_tokens,
    guaranteed_speedup,
    operations_factor,
    speedup,
)

RATES = [number / 20 for number in range(20)]
COSTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.37, 0.5, 0.8, 1.0, 1.5]


def precise_speedups(rate: float, cost: float, longest: int) -> list[Decimal]:
    """Theorem 3.8 for K = 0 up, equation 1 as a sum, with 60 digits."""
    with localcontext(prec=60):
        reached = accumulate([Decimal(rate)] * longest, mul, initial=Decimal(1))
        tokens = accumulate(reached)
        return [value / (1 + length * Decimal(cost)) for length, value in enumerate(tokens)]


def test_speedup_and_operations_are_those_worked_out_by_hand() -> None:
    assert speedup(0.5, 3, 0.25) == pytest.approx(1.875 / 1.75, rel=1e-14)
    assert speedup(0.5, 3, 0) == pytest.approx(1.875, rel=1e-14)
    assert operations_factor(0.5, 3, 0.25) == pytest.approx(4.75 / 1.875, rel=1e-14)
    assert operations_factor(0.5, 0, 0.25) == 1


@pytest.mark.parametrize("length", [0, 1, 4, 100])
def test_everything_rejected_is_a_token_a_step_and_everything_accepted_k_plus_1(length: int) -> None:
    assert expected_tokens(0, length) == 1
    assert expected_tokens(1, length) == length + 1
    assert speedup(1, length, 0.1) == pytest.approx((length + 1) / (0.1 * length + 1))
    assert operations_factor(1, length, 0.1) == pytest.approx((1.1 * length + 1) / (length + 1))


@given(st.floats(0, 1), st.integers(0, 50))
def test_expected_tokens_keep_their_digits_next_to_1(rate: float, length: int) -> None:
    near = 1 - (1 - rate) * 1e-9
    for value in (rate, near):
        exact = float(precise_speedups(value, 0, length)[-1])
        assert expected_tokens(value, length) == pytest.approx(exact, rel=1e-13)


@pytest.mark.statistical
@pytest.mark.parametrize("length", [1, 4, 10])
def test_equation_1_is_what_algorithm_1_does(length: int) -> None:
    """200,000 steps, seed 5, with p, q and uniforms drawn as in Algorithm 1; two-sided, false alarms at 1e-6 per case.

    The test notices 2% of a wrong acceptance rate: z is then above 10.
    """
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.2, 0.1, 0.3])
    rate = float(np.minimum(p, q).sum())
    rng, num_steps = np.random.default_rng(5), 200_000
    drafts = rng.choice(len(q), (num_steps, length), p=q)
    accepted = rng.random((num_steps, length)) < (p / q)[drafts]
    tokens = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
    error = tokens.std() / math.sqrt(num_steps)
    assert abs(tokens.mean() - expected_tokens(rate, length)) / error < 4.89
    assert abs(tokens.mean() - expected_tokens(rate * 1.02, length)) / error > 10


@pytest.mark.parametrize("cost", COSTS)
def test_the_best_draft_length_is_the_fastest_of_all_that_are_tried(cost: float) -> None:
    for rate in RATES:
        tried = precise_speedups(rate, cost, 80)
        assert best_draft_length(rate, cost) == tried.index(max(tried)), rate


def test_long_best_draft_lengths_are_found_too() -> None:
    best = best_draft_length(0.9999, 1e-5)
    assert best is not None
    assert best > 10_000
    around = [speedup(0.9999, length, 1e-5) for length in (best - 1, best, best + 1)]
    assert max(around) == around[1]


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.7, 1.0])
def test_drafting_pays_only_where_alpha_is_above_c(rate: float) -> None:
    assert best_draft_length(rate, rate) == 0
    assert best_draft_length(rate, rate + 0.1) == 0
    if rate > 0:
        assert best_draft_length(rate, rate * 0.99) != 0


@pytest.mark.parametrize(("rate", "cost"), [(0.5, 0), (1, 0), (1, 0.3)])
def test_there_is_no_best_where_longer_is_always_faster(rate: float, cost: float) -> None:
    assert best_draft_length(rate, cost) is None
    assert speedup(rate, 20, cost) > speedup(rate, 19, cost)


@pytest.mark.parametrize("cost", [0.0, *COSTS])
def test_the_best_gains_what_corollary_3_9_guarantees(cost: float) -> None:
    for rate in RATES:
        best = best_draft_length(rate, cost)
        gained = speedup(rate, 1000 if best is None else best, cost)
        bound = guaranteed_speedup(rate, cost)
        assert gained >= bound * (1 - 1e-12), rate
        assert bound == pytest.approx((1 + rate) / (1 + cost) if rate > cost else 1), rate
