"""The formulas of section 3: by hand, by simulation, by brute force, and at their limits."""

import math
from decimal import Decimal, localcontext
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory.leviathan import best_draft_length, expected_tokens, speedup

RATES = [number / 20 for number in range(20)]
COSTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.37, 0.5, 0.8, 1.0, 1.5]


def precise_speedups(rate: float, cost: float, longest: int) -> list[Decimal]:
    """Theorem 3.8 for K = 0 up, equation 1 as a sum, with 60 digits."""
    with localcontext(prec=60):
        reached = accumulate([Decimal(rate)] * longest, mul, initial=Decimal(1))
        tokens = accumulate(reached)
        return [value / (1 + length * Decimal(cost)) for length, value in enumerate(tokens)]


def test_speedup_is_that_worked_out_by_hand() -> None:
    assert speedup(0.5, 3, 0.25) == pytest.approx(1.875 / 1.75, rel=1e-14)
    assert (expected_tokens(0, 4), expected_tokens(1, 4)) == (1, 5)
    assert best_draft_length(0.5, 0) is best_draft_length(1, 0.3) is None


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
