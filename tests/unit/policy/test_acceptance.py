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
    AcceptanceModel,
    expect,
)
from vllm_spec_plugin.policy.request_index import RequestRows

SEED = 11
# Output tokens that no test comes near: nothing fades.
FOREVER = 1e12


class Requests:
    """A model that is told of requests by their names, with K = 4 unless told."""

    def __init__(self, num_positions: int = 4, half_life: float = FOREVER, *, is_tree: bool = False) -> None:
        self.rows = RequestRows()
        self.model = AcceptanceModel(num_positions, self.rows, half_life=half_life, initial=0.6, is_tree=is_tree)

    def learn(self, request_id: str, drafted: int, accepted: int, nodes: int = 0, num_tokens: int = 0) -> None:
        """Learns one step."""
        step = (np.array([value]) for value in (drafted, accepted, nodes, num_tokens))
        self.model.learn(self.rows.add([request_id]), *step)

    def of(self, request_id: str) -> Floats:
        """[2]: effect and information."""
        own: Floats = self.model.effects.requests[self.rows.add([request_id])[0]].copy()
        return own

    def probabilities(self, request_id: str) -> Floats:
        """[K]: of each position, of a request that may be unknown."""
        return sigmoid(logit(self.model.average) + self.of(request_id)[EFFECT])


def sigmoid(log_odds: Floats) -> Floats:
    return 1 / (1 + np.exp(-log_odds))


def logit(probability: Floats) -> Floats:
    return np.log(probability / (1 - probability))


def accepted_of(rng: np.random.Generator, probabilities: Floats) -> int:
    """Counts the accepted tokens of a draft before the first rejection."""
    rejected = rng.random(len(probabilities)) >= probabilities
    return int(rejected.argmax()) if rejected.any() else len(probabilities)


def test_positions_and_skills_are_recovered() -> None:
    """300 requests of normal effects with variance `VARIANCE`, 40 drafts of 3 tokens each, in random order.

    A position's log-odds are known to about 1 / sqrt(300) = 0.09, as the mean effect is; 0.35 is four times that.
    A effect is known to about 1 / sqrt(40 x 0.15 + 1 / VARIANCE) = 0.39 from the first position alone, in which
    a (1 - a) is 0.15 on average; 0.6 leaves half as much for the approximations of the filter. What is to be compared
    are effects relative to their mean.
    """
    rng, requests = np.random.default_rng(SEED), Requests(3)
    positions, effects = np.array([1.2, 0.5, 0.0]), rng.normal(0, VARIANCE**0.5, 300)
    for request in rng.permutation(np.repeat(np.arange(300), 40)):
        requests.learn(str(request), 3, accepted_of(rng, sigmoid(positions + effects[request])))
    found = np.array([requests.of(str(request))[EFFECT] for request in range(300)])
    assert logit(requests.model.average) == pytest.approx(positions + effects.mean(), abs=0.35)
    errors = (found - found.mean()) - (effects - effects.mean())
    assert math.sqrt((errors**2).mean()) < 0.6
    assert np.corrcoef(found, effects)[0, 1] > 0.9


@pytest.mark.parametrize("accepted", [0, 1])
def test_an_update_is_an_extended_kalman_filter_s(accepted: int) -> None:
    """One token at the first position, after 5 others: of two unknowns with variances u and v, and noise 1 / w."""
    requests = Requests(1)
    for outcome in (1, 0, 1, 1, 0):
        requests.learn("b", 1, outcome)
    requests.learn("a", 1, 1)
    log_odds, (effect, information) = logit(requests.model.average)[0], requests.of("a")
    of_position = requests.model.effects.information[0] * 0.5 ** (1 / 1024)
    own = (of_position * requests.model.effects.log_odds[0] + ANCHOR * logit(np.array(0.6))) / (of_position + ANCHOR)
    requests.learn("a", 1, accepted)
    variances = np.array([1 / (of_position + ANCHOR), 1 / (information + 1 / VARIANCE)])
    gradient, prob = np.ones(2), float(sigmoid(own + effect))
    covariance, noise = np.diag(variances), 1 / (prob * (1 - prob))
    gain = covariance @ gradient / (gradient @ covariance @ gradient + noise)
    expected = np.array([own, effect]) + gain * (accepted - prob) * noise
    moved = np.array([logit(requests.model.average)[0], requests.of("a")[EFFECT]])
    assert moved == pytest.approx(expected, rel=1e-9)
    assert (moved - [own, effect])[0] / (moved - [own, effect])[1] == pytest.approx(variances[0] / variances[1])
    assert abs(own - log_odds) < 0.01
    # Variances after it: those of a filter without what the two unknowns then have in common.
    after = np.diag(covariance - np.outer(gain, gradient @ covariance))
    known = requests.model.effects.information[0] + ANCHOR, requests.of("a")[INFORMATION] + 1 / VARIANCE
    assert 1 / np.array(known) == pytest.approx(after)


def test_information_of_a_request_halves_in_its_half_life() -> None:
    """The effect shrinks as if it had come from half of the observations; without tokens nothing fades."""
    requests = Requests(half_life=64)
    variance = requests.model.effects.variance
    for _ in range(10):
        requests.learn("a", 4, 4)
    effect, information = requests.of("a")
    requests.learn("a", 0, 0)
    assert requests.of("a") == pytest.approx([effect, information])
    requests.learn("a", 0, 0, num_tokens=64)
    mean_of_data = effect * (information + 1 / VARIANCE) / information
    shrunk = mean_of_data * (information / 2) / (information / 2 + 1 / variance[0])
    assert requests.of("a") == pytest.approx([shrunk, information / 2])
    requests.learn("a", 0, 0, num_tokens=10_000)
    assert requests.of("a") == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize(("deviation", "least", "most"), [(0.0, 0.25, 0.3), (2.0, 1.2, 6.0)], ids=["alike", "unlike"])
def test_the_variance_of_skills_is_learned(deviation: float, least: float, most: float) -> None:
    """Learns from 100 requests with 30 drafts of 3 tokens each, one after the other; it is bounded below at 0.25.

    Over 40 seeds it is 0.25 to 0.27 where requests are alike. For a variance of 4, of which bounded probabilities and
    fading outcomes show a part, it is 1.3 to 5.1, with mean 2.5.
    """
    rng, requests = np.random.default_rng(SEED), Requests(3, half_life=64)
    for request in range(100):
        effect = rng.normal(0, deviation)
        for _ in range(30):
            accepted = accepted_of(rng, sigmoid(np.full(3, 0.5) + effect))
            requests.learn(str(request), 3, accepted, num_tokens=accepted + 1)
    assert least <= requests.model.effects.variance[0] <= most


def test_the_first_rejected_token_of_a_chain_is_the_last_that_tells_anything() -> None:
    """4 tokens of which 1 is accepted are as 2; tokens beyond K do not count."""
    cut, whole, beyond = Requests(), Requests(), Requests()
    cut.learn("a", 2, 1)
    whole.learn("a", 4, 1)
    beyond.learn("a", 9, 1)
    assert cut.model.effects.information.tolist() == whole.model.effects.information.tolist()
    assert (whole.model.effects.information > 0).tolist() == [True, True, False, False]
    assert beyond.of("a").tolist() == whole.of("a").tolist()
    all_of_two, all_of_nine = Requests(2), Requests(2)
    all_of_two.learn("a", 2, 2)
    all_of_nine.learn("a", 9, 9)
    assert all_of_nine.of("a").tolist() == all_of_two.of("a").tolist()


@pytest.mark.parametrize(("most", "drafted", "accepted"), [(5, 4, [1, 3]), (64, 64, [0, 63])])
def test_nodes_of_a_tree_tell_of_themselves_also_after_a_rejected_one(
    most: int, drafted: int, accepted: list[int]
) -> None:
    """Bits say which of the verified nodes were accepted; bit 63 of a number is its sign."""
    tree, bits = Requests(most, is_tree=True), sum(1 << node for node in accepted)
    for _ in range(40):
        tree.learn("a", drafted, len(accepted), nodes=bits - (bits >> 63 << 64))
    assert [node for node in range(drafted) if tree.model.average[node] > 0.5] == accepted
    assert (tree.model.effects.information > 0).tolist() == [node < drafted for node in range(most)]


@pytest.mark.parametrize("accepted", [0, 4])
def test_nothing_is_ever_certain(accepted: int) -> None:
    """20,000 drafts alike: log-odds end at 7 either way."""
    requests = Requests(half_life=64)
    count = 20_000
    rows, drafted = np.full(count, requests.rows.add(["a"])[0]), np.full(count, 4)
    requests.model.learn(rows, drafted, np.full(count, accepted), np.zeros(count, np.int64), np.full(count, 1))
    assert np.isfinite(requests.model.average).all()
    assert (np.abs(logit(requests.model.average)) <= 7 + 1e-9).all()
    assert (requests.model.average[0] > 0.5) == (accepted > 0)


def expected_of(present: Requests, accepted: Requests, *request_ids: str, num_columns: int = 6) -> list[Floats]:
    """Computes P(draft), gains and draft tokens, each by request."""
    arrays = [np.full((len(request_ids), *shape), np.nan) for shape in ((), (num_columns,), (num_columns,))]
    rows = present.rows.add(request_ids)
    expect(present.model.effects, accepted.model.effects, accepted.model.is_tree, rows, *arrays)
    return arrays


@pytest.mark.parametrize("is_tree", [False, True])
def test_expected_gains_per_draft_token_fall_and_end_with_the_positions(is_tree: bool) -> None:
    """Seed `SEED`: 200 random drafts of 5 requests; gains are of drafts that come."""
    rng, present, accepted = np.random.default_rng(SEED), Requests(), Requests(is_tree=is_tree)
    accepted.rows = present.rows
    accepted.model = AcceptanceModel(4, present.rows, half_life=64, initial=0.6, is_tree=is_tree)
    for _ in range(200):
        name, drafted = f"r{rng.integers(5)}", int(rng.integers(0, 5))
        present.learn(name, 4, drafted)
        accepted.learn(name, drafted, int(rng.integers(0, drafted + 1)), nodes=int(rng.integers(0, 16)))
    names = [f"r{request}" for request in range(5)]
    draft_prob, gains, draft_tokens = expected_of(present, accepted, *names, "new")
    assert not gains[:, 4:].any()
    assert not draft_tokens[:, 4:].any()
    assert (np.diff(gains[:, :4] / draft_tokens[:, :4], axis=1) <= 1e-12).all()
    assert (draft_prob == draft_tokens[:, 0]).all()
    for row, name in enumerate(["new", *names], start=-1):
        assert draft_tokens[row, :4] == pytest.approx(np.cumprod(present.probabilities(name)))
        own = accepted.probabilities(name)
        right = np.minimum.accumulate(own) if is_tree else np.cumprod(own)
        assert gains[row, :4] == pytest.approx(right * draft_tokens[row, :4])
