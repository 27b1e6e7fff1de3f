"""Predicted acceptance, against the formulas and on simulated drafts whose truth is known (Rasch's model)."""

import math

import numpy as np
import pytest

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.policy.acceptance import (
    ANCHOR,
    EFFECT,
    INFORMATION,
    VARIANCE,
    Acceptance,
    expect,
    fade,
    learn,
)

SEED = 11
# Prior log-odds of the tests' first position.
INITIAL = math.log(0.6 / 0.4)
# Output tokens that no test comes near: nothing fades.
FOREVER = 1e12


class Requests:
    """The acceptance of one proposer, told of requests by their numbers, with K = 4 unless told."""

    def __init__(self, num_positions: int = 4, half_life: float = FOREVER, *, is_tree: bool = False) -> None:
        model = Acceptance.of([num_positions], [is_tree], half_life)
        model.log_odds[1] = model.initial[1] = INITIAL
        self.model, self.effects = model, np.zeros((300, 2, 2))

    def learn(self, row: int, drafted: int, accepted: int, nodes: int = 0, planned: int = 0) -> None:
        """Learns one draft; nothing of planned tokens unless told."""
        learn(self.model, self.effects, np.array([[row, 0, planned, drafted, accepted, nodes]]), 1)

    def of(self, row: int) -> Floats:
        """[2]: effect and information."""
        own: Floats = self.effects[row, 1].copy()
        return own

    @property
    def average(self) -> Floats:
        """[K]: log-odds of an average request."""
        return logit(np.array(self.model.average(0)))


def sigmoid(log_odds: Floats) -> Floats:
    return 1 / (1 + np.exp(-log_odds))


def logit(probability: Floats) -> Floats:
    return np.log(probability / (1 - probability))


def accepted_of(rng: np.random.Generator, probabilities: Floats) -> int:
    """Counts the accepted tokens of a draft before the first rejection."""
    rejected = rng.random(len(probabilities)) >= probabilities
    return int(rejected.argmax()) if rejected.any() else len(probabilities)


def test_positions_and_effects_are_recovered() -> None:
    """300 requests of normal effects with variance `VARIANCE`, 40 drafts of 3 tokens each, in random order.

    A position's log-odds are known to about 1 / sqrt(300) = 0.09, as the mean effect is; 0.35 is four times that.
    An effect is known to about 1 / sqrt(40 x 0.15 + 1 / VARIANCE) = 0.39 from the first position alone, in which
    a (1 - a) is 0.15 on average; 0.6 leaves half as much for the approximations of the filter. What is to be compared
    are effects relative to their mean.
    """
    rng, requests = np.random.default_rng(SEED), Requests(3)
    positions, effects = np.array([1.2, 0.5, 0.0]), rng.normal(0, VARIANCE**0.5, 300)
    for row in rng.permutation(np.repeat(np.arange(300), 40)):
        requests.learn(row, 3, accepted_of(rng, sigmoid(positions + effects[row])))
    found = requests.effects[:, 1, EFFECT]
    assert requests.average == pytest.approx(positions + effects.mean(), abs=0.35)
    errors = (found - found.mean()) - (effects - effects.mean())
    assert math.sqrt((errors**2).mean()) < 0.6
    assert np.corrcoef(found, effects)[0, 1] > 0.9


@pytest.mark.parametrize("accepted", [0, 1])
def test_an_update_is_an_extended_kalman_filter_s(accepted: int) -> None:
    """One token at the first position, after 5 others: of two unknowns with variances u and v, and noise 1 / w."""
    requests = Requests(1)
    for outcome in (1, 0, 1, 1, 0):
        requests.learn(1, 1, outcome)
    requests.learn(0, 1, 1)
    effect, information = requests.of(0)
    of_position = requests.model.information[1, 0] * 0.5 ** (1 / 1024)
    own = (of_position * requests.model.log_odds[1, 0] + ANCHOR * INITIAL) / (of_position + ANCHOR)
    requests.learn(0, 1, accepted)
    variances = np.array([1 / (of_position + ANCHOR), 1 / (information + 1 / VARIANCE)])
    gradient, prob = np.ones(2), float(sigmoid(own + effect))
    covariance, noise = np.diag(variances), 1 / (prob * (1 - prob))
    gain = covariance @ gradient / (gradient @ covariance @ gradient + noise)
    expected = np.array([own, effect]) + gain * (accepted - prob) * noise
    assert [requests.average[0], requests.of(0)[EFFECT]] == pytest.approx(expected, rel=1e-9)
    # Variances after it: those of a filter without what the two unknowns then have in common.
    after = np.diag(covariance - np.outer(gain, gradient @ covariance))
    known = requests.model.information[1, 0] + ANCHOR, requests.of(0)[INFORMATION] + 1 / VARIANCE
    assert 1 / np.array(known) == pytest.approx(after)


def test_information_of_a_request_halves_in_its_half_life() -> None:
    """The effect shrinks as if it had come from half of the observations."""
    requests = Requests(half_life=64)
    for _ in range(10):
        requests.learn(0, 4, 4)
    effect, information = requests.of(0)
    fade(requests.model, requests.effects[0], 64)
    mean_of_data = effect * (information + 1 / VARIANCE) / information
    shrunk = mean_of_data * (information / 2) / (information / 2 + 1 / requests.model.variance[1])
    assert requests.of(0) == pytest.approx([shrunk, information / 2])
    fade(requests.model, requests.effects[0], 10_000)
    assert requests.of(0) == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize(("deviation", "least", "most"), [(0.0, 0.25, 0.3), (2.0, 1.2, 6.0)], ids=["alike", "unlike"])
def test_the_variance_of_effects_is_learned(deviation: float, least: float, most: float) -> None:
    """Learns from 100 requests with 30 drafts of 3 tokens each, one after the other; it is bounded below at 0.25.

    Over 40 seeds it is 0.25 to 0.27 where requests are alike. For a variance of 4, of which bounded probabilities and
    fading outcomes show a part, it is 1.3 to 5.1, with mean 2.5.
    """
    rng, requests = np.random.default_rng(SEED), Requests(3, half_life=64)
    for row in range(100):
        effect = rng.normal(0, deviation)
        for _ in range(30):
            accepted = accepted_of(rng, sigmoid(np.full(3, 0.5) + effect))
            requests.learn(row, 3, accepted)
            fade(requests.model, requests.effects[row], accepted + 1)
    assert least <= requests.model.variance[1] <= most


def test_the_first_rejected_token_of_a_chain_is_the_last_that_tells_anything() -> None:
    """4 tokens of which 1 is accepted are as 2; tokens beyond K do not count. So for tokens that were not drafted."""
    cut, whole, beyond = Requests(), Requests(), Requests()
    for requests, drafted in ((cut, 2), (whole, 4), (beyond, 9)):
        requests.learn(0, drafted, 1, planned=drafted)
        assert (requests.model.information[1] > 0).tolist() == [True, True, False, False]
    assert cut.effects[0, 1].tolist() == whole.effects[0, 1].tolist() == beyond.effects[0, 1].tolist()
    requests = Requests()
    requests.learn(0, 1, 0, planned=4)
    assert (requests.model.information > 0).tolist() == [[True, True, False, False], [True, False, False, False]]


@pytest.mark.parametrize("accepted", [0, 4])
def test_whatever_comes_estimates_are_bounded(accepted: int) -> None:
    requests = Requests()
    for row in range(300):
        requests.learn(row % 3, 4, accepted)
    assert (np.abs(requests.average) <= 7 + 1e-9).all()
    assert (requests.average[0] > 0) == (accepted > 0)


@pytest.mark.parametrize("is_tree", [False, True])
def test_expected_gains_per_draft_token_fall_and_end_with_the_positions(is_tree: bool) -> None:
    """Seed `SEED`: 200 random drafts of 5 requests; gains are of drafts that come."""
    rng, requests = np.random.default_rng(SEED), Requests(is_tree=is_tree)
    for _ in range(200):
        drafted = int(rng.integers(0, 5))
        accepted, nodes = int(rng.integers(0, drafted + 1)), int(rng.integers(0, 16))
        requests.learn(int(rng.integers(5)), drafted, accepted, nodes, planned=4)
    wider = requests.model._replace(num_positions=np.array([3]))
    for model, num_positions in ((requests.model, 4), (wider, 3)):
        gains, draft_tokens = np.full((2, 1, 6, 4), np.nan)
        expect(model, requests.effects, np.arange(6), gains, draft_tokens)
        assert not gains[0, :, num_positions:].any()
        assert not draft_tokens[0, :, num_positions:].any()
        shares = gains[0, :, :num_positions] / draft_tokens[0, :, :num_positions]
        assert (np.diff(shares, axis=1) <= 1e-12).all()
        for row in range(6):
            own = sigmoid(requests.average + requests.of(row)[EFFECT])[:num_positions]
            assert shares[row] == pytest.approx(np.minimum.accumulate(own) if is_tree else np.cumprod(own))
