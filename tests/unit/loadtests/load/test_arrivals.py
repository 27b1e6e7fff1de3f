"""Arrivals of an open loop."""

import random
import statistics
from itertools import islice

from loadtests.load.arrivals import poisson

SEED = 11


def test_arrivals_come_at_the_rate_and_vary_as_a_poisson_process_does() -> None:
    """20,000 gaps: mean and standard deviation are both 1 / rate; false alarms below 1e-6 (7 standard errors)."""
    gaps = list(islice(poisson(4.0, random.Random(SEED)), 20_000))
    assert abs(statistics.mean(gaps) - 0.25) < 7 * 0.25 / 20_000**0.5
    assert abs(statistics.stdev(gaps) - 0.25) < 7 * 0.25 * (2 / 20_000) ** 0.5


def test_the_same_seed_gives_the_same_arrivals() -> None:
    first, second = (list(islice(poisson(1.0, random.Random(SEED)), 5)) for _ in range(2))
    assert first == second
