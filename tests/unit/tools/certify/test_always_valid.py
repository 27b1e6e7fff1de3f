"""Always-valid tests: how often they are wrong where nothing is, and what they find."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.always_valid import TwoSamples
from vllm_spec_tools.certify.target_probabilities import LISTED, Row

ALPHA = 0.05
LOOKS = 8
PREFIX = (1, 2)
# One common token, some rare ones: where a chi-square test's tail is far from its nominal one.
SKEWED = np.array([0.9, 0.05, 0.02] + [0.001] * 30)


def row(p: np.ndarray, drops: bool = False) -> Row:
    """As the target's distribution has it."""
    listed = p > 0 if drops else p >= LISTED
    return Row(np.flatnonzero(listed), p[listed], float(p[~listed].sum()))


def most_evidence(rng: np.random.Generator, p: np.ndarray, truth: np.ndarray, size: int) -> float:
    """Finds the most evidence of all looks at a growing sample; the look is chosen in hindsight."""
    counts: Counter[int] = Counter()
    most = 0.0
    for _ in range(LOOKS):
        counts.update(rng.choice(len(p), size, p=truth / truth.sum()).tolist())
        most = max(most, always_valid.mean(always_valid.against_probabilities({PREFIX: counts}, {PREFIX: row(p)})))
    return most


def most_evidence_of_two(rng: np.random.Generator, first: np.ndarray, second: np.ndarray, size: int) -> float:
    test, most = TwoSamples(), 0.0
    for _ in range(LOOKS):
        for source, law in enumerate((first, second)):
            for token in rng.choice(len(law), size, p=law / law.sum()).tolist():
                test.add(source, ((), PREFIX), token)
        most = max(most, test.log_e)
    return most


Most = Callable[[np.random.Generator, np.ndarray, np.ndarray, int], float]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("most", "count", "size", "allowed"), [(most_evidence, 2000, 40, 130), (most_evidence_of_two, 600, 20, 48)]
)
def test_false_alarms_at_the_worst_of_many_looks_are_below_their_rate(
    most: Most, count: int, size: int, allowed: int
) -> None:
    """Seed 0. Samples of 8 looks of `size` tokens, alpha 5%; false-alarm rate below 1e-3 for `allowed` alarms."""
    rng, p = np.random.default_rng(0), SKEWED / SKEWED.sum()
    alarms = sum(always_valid.p_value(most(rng, p, p, size)) <= ALPHA for _ in range(count))
    print(f"{alarms} alarms of {count}")
    assert alarms <= allowed


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("most", "wrong"), [(most_evidence, [0.41, 0.42, 0.17]), (most_evidence_of_two, [0.37, 0.5, 0.13])]
)
def test_a_known_deviation_is_found(most: Most, wrong: list[float]) -> None:
    """Seed 0. A token of 0.3 has 0.42, or 0.5; 8 looks of 125 tokens: found at 1e-6 in at least 95 of 100 samples."""
    rng, p = np.random.default_rng(0), np.array([0.5, 0.3, 0.2])
    found = sum(always_valid.p_value(most(rng, p, np.array(wrong), 125)) < 1e-6 for _ in range(100))
    print(f"{found} of 100")
    assert found >= 95


def test_an_impossible_token_is_certain_evidence() -> None:
    log_e = always_valid.mean(
        always_valid.against_probabilities({PREFIX: Counter({0: 5, 2: 1})}, {PREFIX: row(np.array([0.5, 0.5, 0.0]))})
    )
    assert log_e == math.inf
    assert always_valid.p_value(log_e) == 0


def test_one_observation_is_no_evidence_whatever_it_is() -> None:
    log_e = always_valid.against_probabilities({PREFIX: Counter({3: 1})}, {PREFIX: row(SKEWED / SKEWED.sum())})
    assert log_e == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "drops"),
    [
        ([0.2, 0.8], False),
        # Tokens of each magnitude, twice.
        ([0.5, 0.4, 0.05, 0.04, 0.004, 0.005, 0.0004, 0.0005, 0.00004, 0.00006], False),
        ([0.5, 0.4, 0.05, 0.04, 0.004, 0.005, 0.0004, 0.0005, 0.00004, 0.00006], True),
    ],
    ids=["two tokens", "rare tokens", "rare tokens, others dropped"],
)
def test_expectation_over_all_outcomes_is_1(p: list[float], drops: bool) -> None:
    """Three tokens after one prefix."""
    probs = np.array(p)
    total = sum(
        math.prod(probs[list(outcome)])
        * np.exp(always_valid.against_probabilities({PREFIX: Counter(outcome)}, {PREFIX: row(probs, drops)}))
        for outcome in np.ndindex(*[len(p)] * 3)
    )
    assert total == pytest.approx(1)


def test_two_samples_have_an_expectation_of_1_at_most() -> None:
    """Three pairs after one prefix, two tokens possible: the sum over the 64 outcomes."""
    p, total = np.array([0.3, 0.7]), 0.0
    for outcome in np.ndindex(2, 2, 2, 2, 2, 2):
        test = TwoSamples()
        for i, token in enumerate(outcome):
            test.add(i % 2, ((), PREFIX), token)
        total += math.prod(p[list(outcome)]) * math.exp(test.log_e)
    assert 0.9 < total <= 1 + 1e-9


def test_an_e_value_of_20_is_a_p_value_of_5_percent_and_none_says_nothing() -> None:
    assert always_valid.p_value(always_valid.mean([math.log(10), math.log(30)])) == pytest.approx(0.05)
    assert always_valid.p_value(always_valid.mean([])) == 1
