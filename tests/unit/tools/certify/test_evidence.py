"""Always-valid tests: how often they are wrong where nothing is, and what they find."""

import math
from collections import Counter

import numpy as np
import pytest

from vllm_spec_plugin.tools.certify import evidence
from vllm_spec_plugin.tools.certify.evidence import TwoSamples

ALPHA = 0.05
LOOKS = 8
PREFIX = (1, 2)
# One common token, some rare ones: where a chi-square test's tail is far from its nominal one.
SKEWED = np.array([0.9, 0.05, 0.02] + [0.001] * 30)


def most_evidence(rng: np.random.Generator, p: np.ndarray, truth: np.ndarray, size: int) -> float:
    """Of all looks at a growing sample; the look is chosen in hindsight."""
    counts: Counter[int] = Counter()
    most = 0.0
    for _ in range(LOOKS):
        counts.update(rng.choice(len(p), size, p=truth / truth.sum()).tolist())
        most = max(most, evidence.mean(evidence.against_probabilities({PREFIX: counts}, [p])))
    return most


def most_evidence_of_two(rng: np.random.Generator, first: np.ndarray, second: np.ndarray, size: int) -> float:
    test, most = TwoSamples(), 0.0
    for _ in range(LOOKS):
        for source, law in enumerate((first, second)):
            for token in rng.choice(len(law), size, p=law / law.sum()).tolist():
                test.add(source, PREFIX, token)
        most = max(most, test.log_e)
    return most


@pytest.mark.statistical
def test_false_alarms_at_the_worst_of_many_looks_are_below_their_rate() -> None:
    """Seed 0. 2,000 samples of 8 looks of 40 tokens, alpha 5%: at most 130 alarms, false-alarm rate below 1e-3."""
    rng, p = np.random.default_rng(0), SKEWED / SKEWED.sum()
    alarms = sum(evidence.p_value(most_evidence(rng, p, p, 40)) <= ALPHA for _ in range(2000))
    print(f"{alarms} alarms of 2,000")
    assert alarms <= 130


@pytest.mark.statistical
def test_false_alarms_of_two_samples_are_below_their_rate() -> None:
    """Seed 0. 600 samples of 8 looks of 20 tokens each, alpha 5%: at most 48, false-alarm rate below 1e-3."""
    rng = np.random.default_rng(0)
    alarms = sum(evidence.p_value(most_evidence_of_two(rng, SKEWED, SKEWED, 20)) <= ALPHA for _ in range(600))
    print(f"{alarms} alarms of 600")
    assert alarms <= 48


@pytest.mark.statistical
def test_a_known_deviation_is_found() -> None:
    """Seed 0. A token of 0.3 that has 0.42, 8 looks of 125 tokens: found at 1e-6 in at least 95 of 100 samples."""
    rng = np.random.default_rng(0)
    p, truth = np.array([0.5, 0.3, 0.2]), np.array([0.41, 0.42, 0.17])
    found = sum(evidence.p_value(most_evidence(rng, p, truth, 125)) < 1e-6 for _ in range(100))
    print(f"{found} of 100")
    assert found >= 95


@pytest.mark.statistical
def test_a_known_deviation_between_two_samples_is_found() -> None:
    """Seed 0. A token of 0.3 that has 0.5, 8 looks of 125 tokens each: found at 1e-6 in at least 95 of 100."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        log_e = most_evidence_of_two(rng, np.array([0.5, 0.3, 0.2]), np.array([0.37, 0.5, 0.13]), 125)
        found += evidence.p_value(log_e) < 1e-6
    print(f"{found} of 100")
    assert found >= 95


def test_an_impossible_token_is_certain_evidence() -> None:
    log_e = evidence.mean(evidence.against_probabilities({PREFIX: Counter({0: 5, 2: 1})}, [np.array([0.5, 0.5, 0.0])]))
    assert log_e == math.inf
    assert evidence.p_value(log_e) == 0


def test_one_observation_is_no_evidence_whatever_it_is() -> None:
    log_e = evidence.against_probabilities({PREFIX: Counter({3: 1})}, [SKEWED / SKEWED.sum()])
    assert log_e == pytest.approx(0, abs=1e-9)


def test_expectation_over_all_outcomes_is_1() -> None:
    """Three tokens after one prefix, two possible: the sum over the eight outcomes."""
    p = np.array([0.2, 0.8])
    total = sum(
        math.prod(p[list(outcome)]) * np.exp(evidence.against_probabilities({PREFIX: Counter(outcome)}, [p]))
        for outcome in np.ndindex(2, 2, 2)
    )
    assert total == pytest.approx(1)


def test_mean_of_no_e_values_says_nothing() -> None:
    assert evidence.p_value(evidence.mean([])) == 1
