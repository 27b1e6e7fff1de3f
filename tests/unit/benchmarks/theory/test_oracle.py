"""Section 3.5's oracle for K: simulated, and against the best fixed K."""

import math

import numpy as np
import pytest

from benchmarks.theory.leviathan import LARGEST_GAIN, oracle_gain, oracle_speedup


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "cost"), [(0.8, 0.05), (0.9, 0.2), (0.3, 0.5)])
def test_an_oracle_gains_what_it_does_when_it_is_tried(rate: float, cost: float) -> None:
    """200,000 steps, seed 11; the ratio of two means, by the delta method, two-sided, false alarms at 1e-6 per case.

    The test notices an oracle that pays for one more draft token: z is then above 10.
    """
    num_steps = 200_000
    accepted = np.random.default_rng(11).geometric(1 - rate, num_steps) - 1

    def distance(drafted: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
        tokens, time = accepted + 1.0, 1 + drafted * cost
        ratio = tokens.mean() / time.mean()
        error = (tokens - ratio * time).std() / time.mean() / math.sqrt(num_steps)
        return float(abs(ratio - oracle_speedup(rate, cost)) / error)

    assert distance(accepted) < 4.89
    assert distance(accepted + 1) > 10


def test_the_oracle_is_that_of_the_paper_when_drafting_is_free() -> None:
    assert oracle_speedup(0.8, 0) == pytest.approx(5)
    assert oracle_speedup(1, 0) == math.inf


def test_an_oracle_drafts_nothing_that_costs_more_than_it_saves() -> None:
    assert oracle_speedup(0.8, 1) == 1
    assert oracle_speedup(0.8, 3) == 1


def test_an_oracle_gains_up_to_about_60_percent_as_the_paper_says() -> None:
    """On a grid of alpha at steps of 0.001, for c that the paper calls typical and for smaller ones."""
    rates = [number / 1000 for number in range(1, 1000)]
    largest = {cost: max(oracle_gain(rate, cost) for rate in rates) for cost in (0.002, 0.01, 0.02, 0.05)}
    assert all(1.56 < gain < LARGEST_GAIN for gain in largest.values())
    assert pytest.approx(1.582, abs=5e-4) == LARGEST_GAIN


@pytest.mark.parametrize("cost", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0, 2.0])
def test_an_oracle_is_never_worse_than_a_fixed_k(cost: float) -> None:
    for number in range(101):
        assert 1 - 1e-12 <= oracle_gain(number / 100, cost) < LARGEST_GAIN
