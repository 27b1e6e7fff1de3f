"""Estimates of acceptance, against the formulas event by event and on streams whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scheduling.draft_length.one_by_one import OneByOne
from vllm_spec_plugin.scheduling.draft_length import request_rows
from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceEstimate
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows

HALF_LIFE, STRENGTH, INITIAL = 64.0, 2.0, 0.6
# Of the deviation, in pseudo-observations, and of a single tried position.
FIRM, PULL = 16.0, 1 / (1 / 2 + 1 / 16)
# Long enough that nothing fades within a test.
FOREVER = 1e9
# Standard errors that a single comparison allows; a normal variable is beyond 5 once in 1.7 million times. The seeds
# are fixed.
SIGMAS = 5.0


def accepted_of(rng, rates):
    """How many of a draft's tokens are accepted before the first that is not."""
    refused = rng.random(len(rates)) >= rates
    return int(refused.argmax()) if refused.any() else len(rates)


def step(estimate, rng, request_id, rates):
    """Verifies a draft whose tokens are accepted at `rates`; returns the output tokens."""
    accepted = accepted_of(rng, rates)
    estimate.verified(request_id, len(rates), accepted)
    estimate.advance(request_id, accepted + 1)
    return accepted + 1


def root_mean_square(errors):
    return np.sqrt(np.mean(np.square(errors), axis=0))


def scores(estimate, rng, truth_of, *, num_requests, num_tokens, num_positions):
    """Brier scores of what position 1 was estimated at before each draft, and of the prior at that time.

    Requests come one after the other; the first ten teach the prior and are not scored.
    """
    estimated, constant = [], []
    for request in range(num_requests):
        truth, length = truth_of(), 0
        while length < num_tokens:
            rate, prior = estimate.rates([str(request)])[0, 0], estimate.prior[0]
            accepted = accepted_of(rng, np.full(num_positions, truth(length)))
            if request >= 10:
                estimated.append((rate - (accepted > 0)) ** 2)
                constant.append((prior - (accepted > 0)) ** 2)
            estimate.verified(str(request), num_positions, accepted)
            estimate.advance(str(request), accepted + 1)
            length += accepted + 1
        estimate.forget(str(request))
    return np.array(estimated), np.array(constant)


class Slow:
    """The docstring's formulas, term by term, from the list of all that happened."""

    def __init__(self, num_positions, prior_half_life=4096.0):
        self.num_positions = num_positions
        self.prior_half_life = prior_half_life
        self.drafts = []
        self.events = {}

    def verified(self, request_id, drafted, accepted):
        if drafted:
            tried, kept = self.counts(self.events.get(request_id, []))
            self.drafts.append((drafted, accepted, tried[0], kept[0]))
            self.events.setdefault(request_id, []).append((drafted, accepted))

    def advance(self, request_id, num_tokens):
        self.events.setdefault(request_id, []).append(num_tokens)

    def forget(self, request_id):
        self.events.pop(request_id, None)

    def rates(self, request_ids):
        shared = self.shared()
        return np.array([self.row(self.events.get(request_id, []), *shared) for request_id in request_ids])

    def shared(self):
        rate = level = INITIAL
        rates, levels = [], []
        for i in range(self.num_positions):
            tried = kept = known = good = 0.0
            for age, (drafted, accepted, tried_before, kept_before) in enumerate(reversed(self.drafts)):
                weight = 0.5 ** (age / self.prior_half_life) * (i < min(accepted + 1, drafted))
                tried += weight
                kept += weight * (i < accepted)
                known += weight * tried_before
                good += weight * kept_before
            rate = min(max((kept + 4 * rate) / (tried + 4), 0.001), 0.999)
            if known:
                level = min(max((tried * good / known + 4 * level) / (tried + 4), 0.001), 0.999)
            rates.append(rate)
            levels.append(level)
        return rates, [sigmoid(logit(m) + logit(levels[0]) - logit(at)) for m, at in zip(rates, levels, strict=True)]

    def counts(self, events):
        tried, kept, age = [0.0] * self.num_positions, [0.0] * self.num_positions, 0.0
        for event in reversed(events):
            if not isinstance(event, tuple):
                age += event
                continue
            drafted, accepted = event
            for i in range(self.num_positions):
                tried[i] += 0.5 ** (age / HALF_LIFE) * (i < min(accepted + 1, drafted))
                kept[i] += 0.5 ** (age / HALF_LIFE) * (i < accepted)
            age += 8
        return tried, kept

    def row(self, events, prior, average):
        (tried, kept), t = self.counts(events), FIRM
        worth = [n * t / (n + t) for n in tried]
        total = STRENGTH + sum(worth)
        seen = STRENGTH * average[0] + sum(e * k / n for e, k, n in zip(worth, kept, tried, strict=True) if n)
        foreseen = STRENGTH * average[0] + sum(e * b for e, b in zip(worth, average, strict=True))
        offset = logit(seen / total) - logit(foreseen / total)
        unknown = STRENGTH / total
        rates = []
        for n, k, b, m in zip(tried, kept, average, prior, strict=True):
            against = ((1 - unknown) * math.exp(-logit(b)) + unknown * math.exp(-logit(m))) / math.exp(offset)
            rates.append(min(max((k + t / (1 + against)) / (n + t), 0.001), 0.999))
        return rates


def logit(rate):
    return math.log(rate / (1 - rate))


def sigmoid(odds):
    return 1 / (1 + math.exp(-odds))


def happenings():
    request_ids = st.sampled_from("abcdefg")
    drafts = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (max(pair), min(pair)))
    return st.lists(
        st.one_of(
            st.tuples(st.just("verified"), request_ids, drafts),
            st.tuples(st.just("advance"), request_ids, st.tuples(st.integers(0, 200))),
            st.tuples(st.just("forget"), request_ids, st.just(())),
        ),
        max_size=40,
    )


@settings(max_examples=60, deadline=None)
@given(happenings())
def test_rates_are_the_formulas_whatever_rows_are_reused_or_added(happened):
    """Two rows to begin with, so that seven requests make them grow, and forgotten ones' rows go to others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_rows, "_FIRST_ROWS", 2)
        estimate, slow = OneByOne(3), Slow(3)
    for what, request_id, values in happened:
        getattr(estimate, what)(request_id, *values)
        getattr(slow, what)(request_id, *values)
    np.testing.assert_allclose(estimate.prior, slow.shared()[0], rtol=1e-9)
    np.testing.assert_allclose(estimate.rates([*"gfedcba", "new"]), slow.rates([*"gfedcba", "new"]), rtol=1e-9)


def test_without_evidence_all_is_as_initially():
    estimate = OneByOne(3, initial=0.7)
    assert estimate.prior.tolist() == [0.7] * 3
    np.testing.assert_allclose(estimate.rates(["a", "b"]), 0.7)
    assert estimate.rates([]).shape == (0, 3)
    assert estimate.rates(["a"]).dtype == np.float64


def test_a_single_tried_position_is_pulled_by_both_levels_at_once():
    estimate = OneByOne(4, half_life=FOREVER, prior_half_life=FOREVER)
    for accepted in (1, 0, 0, 1, 0):
        estimate.verified("a", 1, accepted)
    prior = (2 + 4 * 0.6) / (5 + 4)
    np.testing.assert_allclose(estimate.prior, prior)
    assert estimate.rates(["a"])[0, 0] == pytest.approx((2 + PULL * prior) / (5 + PULL))


def test_the_prior_of_a_position_leans_on_the_one_before_it():
    estimate = OneByOne(3, prior_half_life=FOREVER)
    for _ in range(6):
        estimate.verified("a", 2, 2)
    for _ in range(2):
        estimate.verified("b", 2, 0)
    first = (6 + 4 * 0.6) / (8 + 4)
    second = (6 + 4 * first) / (6 + 4)
    np.testing.assert_allclose(estimate.prior, [first, second, second])


def test_the_prior_forgets_by_verified_drafts():
    estimate = OneByOne(1, prior_half_life=2)
    estimate.verified("a", 1, 0)
    estimate.verified("a", 1, 1)
    estimate.verified("b", 1, 1)
    estimate.advance("a", 1000)
    tried = 0.5 + 0.5**0.5 + 1
    assert estimate.prior[0] == pytest.approx((tried - 0.5 + 4 * 0.6) / (tried + 4))


def test_the_prior_stays_what_it_is_over_many_half_lives():
    rng, shape = np.random.default_rng(19), np.array([0.8, 0.5])
    estimate, slow = OneByOne(2, prior_half_life=2), Slow(2, prior_half_life=2)
    for _ in range(600):
        accepted = accepted_of(rng, shape)
        estimate.verified("a", 2, accepted)
        slow.verified("a", 2, accepted)
    np.testing.assert_allclose(estimate.rates(["a", "new"]), slow.rates(["a", "new"]), rtol=1e-9)


def test_a_request_forgets_by_tokens_and_by_verified_drafts():
    faded, fresh = (OneByOne(1, half_life=16, prior_half_life=FOREVER) for _ in range(2))
    faded.verified("a", 1, 1)
    faded.advance("a", 8)
    faded.verified("a", 1, 0)
    fresh.verified("a", 1, 1)
    fresh.verified("a", 1, 0)
    prior = (1 + 4 * 0.6) / 6
    # Aged by 8 tokens and a draft that counts as 8, or by the draft alone.
    assert faded.rates(["a"])[0, 0] == pytest.approx((0.5 + PULL * prior) / (1.5 + PULL))
    assert fresh.rates(["a"])[0, 0] == pytest.approx((0.5**0.5 + PULL * prior) / (1 + 0.5**0.5 + PULL))


@pytest.mark.parametrize(("drafted", "accepted"), [(9, 9), (9, 5), (9, 3), (4, 3), (3, 3), (3, 1)])
def test_what_lies_beyond_the_positions_is_ignored(drafted, accepted):
    short, long = OneByOne(3), OneByOne(9)
    short.verified("a", drafted, accepted)
    long.verified("a", min(drafted, 3), min(accepted, 3))
    np.testing.assert_allclose(short.prior, long.prior[:3])
    np.testing.assert_allclose(short.rates(["a"]), long.rates(["a"])[:, :3])


def test_nothing_is_learned_of_no_draft():
    estimate = OneByOne(2)
    estimate.verified("a", 0, 0)
    assert estimate.prior.tolist() == [0.6, 0.6]


@pytest.mark.parametrize("shape", [(0.2,) * 4, (0.6,) * 4, (0.9,) * 4, (0.9, 0.6, 0.8, 0.3)])
def test_a_steady_request_is_found_to_the_binomial_error(shape):
    """4000 drafts, none fading: position i is tried n_i times, and the pull biases by less than its share, 16."""
    rng, rates = np.random.default_rng(11), np.array(shape)
    estimate = OneByOne(4, half_life=FOREVER, prior_half_life=FOREVER)
    for _ in range(4000):
        step(estimate, rng, "a", rates)
    tried = 4000 * np.cumprod([1, *shape[:-1]])
    allowed = SIGMAS * np.sqrt(rates * (1 - rates) / tried) + 16 / (tried + 16)
    assert (np.abs(estimate.prior - rates) < allowed).all()
    assert (np.abs(estimate.rates(["a"])[0] - rates) < allowed).all()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_fading_estimate_is_as_noisy_as_what_it_remembers(rate):
    """300 requests of 60 drafts with one token: the mean error is 0 and the spread at most the memory's."""
    rng = np.random.default_rng(12)
    estimate = OneByOne(1)
    names = [str(request) for request in range(300)]
    for name in names:
        for _ in range(60):
            step(estimate, rng, name, np.array([rate]))
    # Weights w^age with w the fade of a draft and its mean of 1 + rate tokens.
    fade = 0.5 ** ((8 + 1 + rate) / 64)
    spread = math.sqrt(rate * (1 - rate) * (1 - fade) / (1 + fade))
    rates = estimate.rates(names)[:, 0]
    # The prior saw all 18000 drafts, and remembers 4096 / ln 2 of them.
    prior_error = math.sqrt(rate * (1 - rate) / 5900)
    # Where drafts are accepted more is forgotten: half a token of 9 or so, with the sign of the outcome.
    assert abs(rates.mean() - rate) < SIGMAS * (spread / math.sqrt(300) + prior_error) + 0.02
    assert rates.std() < spread * (1 + SIGMAS / math.sqrt(2 * 300))


def test_a_request_that_turns_is_followed_within_100_tokens():
    """From 0.9 to 0.1 and back every 300 tokens, 4 tokens drafted each step; 60 requests out of step with each other.

    100 tokens after a request's turn, the root mean square over at least 80 turns of either way is below 0.15 of the
    error at position 1 and of the errors of the chances that 1, 2, 3 and 4 drafted tokens are all accepted. Positions
    that a bad request hardly ever reaches may be further off: 0.25. The standard error of such a root is below
    0.25 / sqrt(2 * 80) = 0.02.
    """
    rng = np.random.default_rng(13)
    estimate = OneByOne(4)
    lengths = {str(request): 10 * request for request in range(60)}
    looked = dict.fromkeys(lengths, 0)
    errors: dict[float, list] = {0.9: [], 0.1: []}
    while min(lengths.values()) < 1500:
        for name, length in lengths.items():
            turn, since = divmod(length, 300)
            rate = (0.9, 0.1)[turn % 2]
            # The first turns still teach the proposer's averages.
            if turn >= 2 and since >= 100 and looked[name] < turn:
                looked[name] = turn
                errors[rate].append(estimate.rates([name])[0] - rate)
            lengths[name] += step(estimate, rng, name, np.full(4, rate))
    for rate, seen in errors.items():
        rates = np.array(seen) + rate
        assert len(rates) >= 80
        assert root_mean_square(rates.cumprod(1) - rate ** np.arange(1, 5)).max() < 0.15
        assert root_mean_square(rates - rate).max() < (0.15 if rate == 0.9 else 0.25)


def test_a_turn_of_the_only_request_is_followed_too():
    """In 30 runs from 0.9 to 0.1: the proposer's averages are all its own. Spread 0.04 to 0.1 per run."""
    rng = np.random.default_rng(18)
    rates = []
    for _ in range(30):
        estimate = OneByOne(4)
        for rate, num_tokens in ((0.9, 300), (0.1, 100)):
            length = 0
            while length < num_tokens:
                length += step(estimate, rng, "a", np.full(4, rate))
        rates.append(estimate.rates(["a"])[0])
    assert root_mean_square(np.cumprod(rates, axis=1) - 0.1 ** np.arange(1, 5)).max() < 0.15
    assert root_mean_square(np.array(rates) - 0.1).max() < 0.25


def test_bursts_are_told_from_the_average():
    """Stretches of 60 tokens on average accepted at 0.95 or 0.2, by turns: Brier scores of about 2000 drafts."""
    rng = np.random.default_rng(14)

    def bursts():
        turns = np.cumsum(rng.exponential(60, 50))
        return lambda length: (0.95, 0.2)[int(np.searchsorted(turns, length)) % 2]

    estimated, constant = scores(OneByOne(4), rng, bursts, num_requests=25, num_tokens=300, num_positions=4)
    gain = constant - estimated
    assert gain.mean() > SIGMAS * gain.std() / math.sqrt(len(gain))


def test_requests_that_differ_are_scored_better_than_by_their_average():
    """Rates from Beta(2, 1), so that a perfect estimate gains their variance, 1/18, over the average's Brier score."""
    rng = np.random.default_rng(15)

    def steady():
        rate = rng.beta(2, 1)
        return lambda length: rate

    estimated, constant = scores(OneByOne(4), rng, steady, num_requests=60, num_tokens=150, num_positions=4)
    gain = constant - estimated
    assert gain.mean() > SIGMAS * gain.std() / math.sqrt(len(gain))


def test_a_new_request_starts_at_the_running_average():
    """100 requests of rate 0.9 or 0.3, 40 drafts of one token each: the average to the error of their 4000 drafts."""
    rng = np.random.default_rng(16)
    estimate = OneByOne(2)
    for _ in range(40):
        for request in range(100):
            step(estimate, rng, str(request), np.array([0.9 if request % 2 else 0.3]))
    assert estimate.rates(["new"])[0].tolist() == pytest.approx(estimate.prior.tolist())
    assert abs(estimate.prior[0] - 0.6) < SIGMAS * math.sqrt(0.25 / 4000)


def test_what_is_learned_at_position_1_informs_those_never_tried():
    rng = np.random.default_rng(17)
    estimate = OneByOne(4)
    usual = np.array([0.8, 0.7, 0.7, 0.7])
    for request in range(200):
        step(estimate, rng, f"usual {request}", usual)
    for _ in range(60):
        step(estimate, rng, "bad", np.array([0.2]))
        step(estimate, rng, "good", np.array([0.97]))
    bad, good, usual_rates = estimate.rates(["bad", "good", "new"])
    assert (bad < 0.5 * usual_rates).all()
    assert (good > usual_rates + 0.05).all()


def test_an_idle_request_drifts_back_to_the_prior():
    estimate = OneByOne(3)
    for _ in range(50):
        estimate.verified("usual", 3, 2)
    for _ in range(20):
        estimate.verified("a", 3, 0)
    gaps = []
    for _ in range(20):
        gaps.append(np.abs(estimate.rates(["a"])[0] - estimate.prior))
        estimate.advance("a", 64)
    assert (np.diff(gaps, axis=0) <= 0).all()
    assert gaps[0].min() > 0.05
    assert gaps[-1].max() < 0.002
    estimate.advance("a", 10**9)
    np.testing.assert_allclose(estimate.rates(["a"])[0], estimate.prior)


def test_a_forgotten_request_leaves_only_the_prior():
    estimate = OneByOne(2)
    for _ in range(10):
        estimate.verified("a", 2, 0)
    prior = estimate.prior
    estimate.forget("a")
    estimate.forget("never seen")
    estimate.advance("a", 3)
    np.testing.assert_array_equal(estimate.prior, prior)
    np.testing.assert_allclose(estimate.rates(["a"])[0], prior)


def test_a_row_goes_to_the_next_request_empty():
    estimate = OneByOne(2)
    for _ in range(20):
        estimate.verified("forgotten", 2, 0)
    estimate.forget("forgotten")
    for name in ("in its row", "in a new row"):
        estimate.verified(name, 2, 2)
    reused, new = estimate.rates(["in its row", "in a new row"])
    np.testing.assert_allclose(reused, new)


def test_what_is_returned_is_the_callers():
    estimate = OneByOne(2)
    estimate.prior[:] = 0
    estimate.rates(["a"])[:] = 0
    assert estimate.prior.tolist() == [0.6, 0.6]


@pytest.mark.parametrize("accepted", [0, 8])
def test_certainty_is_never_claimed(accepted):
    estimate = OneByOne(8, half_life=FOREVER, prior_half_life=FOREVER)
    for _ in range(20000):
        estimate.verified("a", 8, accepted)
    every = np.concatenate([estimate.rates(["a", "new"]).ravel(), estimate.prior])
    assert np.isfinite(every).all()
    assert every.min() >= 0.001 - 1e-9
    assert every.max() <= 0.999 + 1e-9
    assert every.min() == pytest.approx(0.001) or accepted
    assert every.max() == pytest.approx(0.999) or not accepted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_positions": 0}, "num_positions is 0; it must be at least 1"),
        ({"half_life": 0}, "half_life is 0; it must be above 0"),
        ({"prior_half_life": 0.5}, "prior_half_life is 0.5; it must be at least 1 draft"),
        ({"strengths": (2.0, math.nan)}, "strengths is nan; it must be above 0"),
        ({"initial": 1}, "initial is 1; it must be a probability"),
        ({"initial": 0}, "initial is 0; it must be a probability"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AcceptanceEstimate(**{"num_positions": 4, "requests": RequestRows(), **arguments})


def test_steps_learned_at_once_are_as_those_learned_one_by_one():
    """60 steps of up to 7 requests, some there twice, some without a draft, some without output."""
    rng, requests = np.random.default_rng(20), RequestRows()
    at_once, one_by_one = OneByOne(3, requests), OneByOne(3)
    for _ in range(60):
        names = rng.choice(list("abcdefg"), rng.integers(0, 8)).tolist()
        drafted = rng.integers(0, 6, len(names))
        accepted = rng.integers(0, drafted + 1)
        num_tokens = rng.integers(0, 9, len(names))
        at_once.estimate.learn(requests.add(names), drafted, accepted, num_tokens)
        for name, *draft, grown in zip(names, drafted.tolist(), accepted.tolist(), num_tokens.tolist(), strict=True):
            one_by_one.verified(name, *draft)
            one_by_one.advance(name, grown)
    names = [*"gfedcba", "new"]
    np.testing.assert_allclose(at_once.rates(names), one_by_one.rates(names), rtol=1e-12)
    np.testing.assert_allclose(at_once.prior, one_by_one.prior, rtol=1e-12)


@pytest.mark.parametrize(("kinds", "least", "most"), [((0.8,), 12, 18), ((0.9, 0.1), 2, 3)])
def test_requests_are_held_to_the_average_as_far_as_they_are_alike(kinds, least, most):
    """20 at a time, each of 20 drafts, all of one kind or of two; more tokens are drafted than are counted."""
    rng, requests = np.random.default_rng(21), RequestRows()
    estimate = AcceptanceEstimate(4, requests, strengths=(2.0, 6.0, 18.0))
    for turn in range(10):
        names = [f"{turn} {place}" for place in range(20)]
        for _ in range(20):
            accepted = np.array([accepted_of(rng, np.full(5, kinds[place % len(kinds)])) for place in range(20)])
            estimate.learn(requests.add(names), np.full(20, 5), accepted, accepted + 1)
        for name in names:
            requests.forget(name)
    assert least <= estimate.state[-1] <= most


def test_estimates_that_share_rows_keep_to_their_own():
    requests = RequestRows()
    first, second = OneByOne(2, requests), OneByOne(3, requests)
    for name in ("a", "b"):
        first.verified(name, 2, 0)
    assert first.rates(["a"])[0, 0] < 0.5
    np.testing.assert_allclose(second.rates(["a", "b"]), 0.6)
    second.verified("b", 3, 3)
    requests.forget("b")
    np.testing.assert_allclose(first.rates(["b"])[0], first.prior)
    np.testing.assert_allclose(second.rates(["b"])[0], second.prior)


@pytest.mark.parametrize(("drafted", "accepted"), [(3, 4), (0, 1), (3, -1)])
def test_a_step_with_an_impossible_draft_is_refused_as_a_whole(drafted, accepted):
    requests = RequestRows()
    estimate = OneByOne(4, requests)
    with pytest.raises(ValueError, match="accepted tokens of a draft are fewer than 0 or more than its tokens"):
        estimate.estimate.learn(
            requests.add(["a", "b"]), np.array([4, drafted]), np.array([0, accepted]), np.array([1, 1])
        )
    np.testing.assert_allclose(estimate.rates(["a"]), 0.6)
