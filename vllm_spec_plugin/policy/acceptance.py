"""Predicts the acceptance of a request's draft tokens from verified ones."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Bools, Floats, Ints, compiled
from vllm_spec_plugin.policy.memory import Learned

# Prior probabilities: that a planned token is drafted, and that a draft token is accepted. Few drafts correct high
# values; with low ones, drafts that gain might never be tried.
_PRESENT, _ACCEPTED = 0.95, 0.8
# Variance of effects over requests, in squared log-odds: before any observation, and the least that is learned.
VARIANCE, _MIN_VARIANCE = 1.0, 0.25
# The variance follows this many half-lives of requests.
_VARIANCE_SAMPLES = 8
# Prior information: of a position's log-odds being those of the position before it, the first one's the initial ones.
LEAN, ANCHOR = 0.25, 1.0
# Maximum information of a position from a former server: that of about 40 draft tokens.
_REMEMBERED = 8.0
# Steps of the server in which the information of a position halves.
_POSITION_HALF_LIFE = 1024
# Bounds of log-odds on both sides, and of the probabilities that updates are computed at.
_MAX_LOG_ODDS, _MIN_PROB = 7.0, 0.002
# Columns of a request's state, and of an outcome.
EFFECT, INFORMATION = range(2)
ROW, PROPOSER, PLANNED, DRAFTED, ACCEPTED, NODES = range(6)


class Acceptance(NamedTuple):
    """Rates positions and requests by one scale of log-odds (Rasch, 1960), updated draft by draft (Glickman, 1999).

    Each of L proposers has two series: 2p of its planned tokens being drafted, 2p + 1 of its draft tokens being
    accepted. Token i of request r has the outcome 1 with probability

        a_ri = sigmoid(b_i + t_r)

    given that all before it had (chains), or unconditionally (trees, whose positions are nodes). The effect t_r is
    normal around 0 with variance S. The prior of b_i is the position before it with information
    l = `LEAN`; that of the first one is the initial guess with l = `ANCHOR`:

        c_i = (n_i b_i + l c_{i-1}) / (n_i + l)

    A verified token, y = 1 if it was accepted, updates both as an extended Kalman filter does. With w = a (1 - a),
    u = 1 / (n_i + l), v = 1 / (m_r + 1 / S) and e = (y - a) / (1 + w (u + v)):

        c_i += u e      n_i += w / (1 + w v)
        t_r += v e      m_r += w / (1 + w u)

    So outcomes of an unknown request change its own effect, and b_i follows outcomes that many requests share. m_r
    halves in every `half_life` output tokens of the request, to follow changes of its text. n_i halves in 1,024 steps,
    with or without drafts, to follow changes of traffic. S follows the mean of t_r^2 + v, the expected square of an
    effect (Dempster, Laird and Rubin, 1977). So where requests are alike, S falls and effects stay near 0.

    Attributes:
        log_odds: [2 L, K], b: log-odds of an average request.
        information: [2 L, K], n: inverse variance of b, without that of the prior by position i - 1.
        initial: [2 L], prior log-odds of the first position.
        variance: [2 L], S: variance of effects over requests.
        num_positions: [L], maximum draft tokens of each proposer, at most K.
        is_tree: [L], whether a proposer's positions are nodes of a tree.
        half_life: output tokens of a request in which its information halves.
    """

    log_odds: Floats
    information: Floats
    initial: Floats
    variance: Floats
    num_positions: Ints
    is_tree: Bools
    half_life: float

    @classmethod
    def of(
        cls,
        num_positions: Sequence[int],
        is_tree: Sequence[bool],
        half_life: float,
        learned: Learned | None = None,
    ) -> "Acceptance":
        """Starts without observations, or from what was learned before; see the attributes."""
        initial = np.tile([math.log(prior / (1 - prior)) for prior in (_PRESENT, _ACCEPTED)], len(num_positions))
        log_odds = np.repeat(initial[:, None], max(num_positions), axis=1)
        trees = np.array(is_tree, np.bool_)
        sizes = np.array(num_positions, np.int64)
        variance, information = np.full(len(initial), VARIANCE), np.zeros_like(log_odds)
        if learned is not None:
            log_odds[:], variance[:] = np.clip(learned.log_odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS), learned.variance
            information[:] = np.minimum(learned.information, _REMEMBERED)
        return cls(log_odds, information, initial, variance, sizes, trees, float(half_life))

    def average(self, proposer: int) -> tuple[float, ...]:
        """[K], probabilities of acceptance for an average request: of chains given all before, of trees per node."""
        odds = np.empty(self.num_positions[proposer])
        _write_odds(self, 2 * proposer + 1, odds)
        return tuple((1 / (1 + np.exp(-odds))).tolist())


@compiled
def _own(model: Acceptance, series: int, i: int, before: float) -> float:
    """Returns c_i, given that of the position before it."""
    information, lean = model.information[series, i], LEAN if i else ANCHOR
    own: float = (information * model.log_odds[series, i] + lean * before) / (information + lean)
    return own


@compiled
def _write_odds(model: Acceptance, series: int, odds: Floats) -> None:
    """Writes c, the log-odds of an average request, of the first positions."""
    before = model.initial[series]
    for i in range(len(odds)):
        before = _own(model, series, i, before)
        odds[i] = before


@compiled
def _bounded(log_odds: float) -> float:
    return min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)


@compiled
def _observe(
    model: Acceptance, series: int, effects: Floats, num_tokens: int, accepted: int, nodes: int, is_tree: bool
) -> None:
    """Updates a series by the tokens of one draft; equations in `Acceptance`.

    Args:
        model: estimates, changed in place.
        series: index of the series.
        effects: [2 L, 2], the request's, changed in place.
        num_tokens: tokens with an outcome; of chains those after the first 0 are no observations.
        accepted: outcomes 1; of chains the first ones.
        nodes: of trees, bit i is whether node i has the outcome 1.
        is_tree: whether positions are nodes.
    """
    request, before = effects[series], model.initial[series]
    last = num_tokens if is_tree else min(num_tokens, accepted + 1)
    for i in range(min(last, model.num_positions[series // 2])):
        is_accepted = bool(nodes >> i & 1) if is_tree else i < accepted
        information, lean = model.information[series, i], LEAN if i else ANCHOR
        own, effect = _own(model, series, i, before), request[EFFECT]
        position_variance, effect_variance = 1 / (information + lean), _effect_variance(model, series, request)
        prob = min(max(1 / (1 + math.exp(-own - effect)), _MIN_PROB), 1 - _MIN_PROB)
        weight = prob * (1 - prob)
        error = ((1.0 if is_accepted else 0.0) - prob) / (1 + weight * (position_variance + effect_variance))
        request[EFFECT] = _bounded(effect + effect_variance * error)
        request[INFORMATION] += weight / (1 + weight * position_variance)
        after = information + weight / (1 + weight * effect_variance)
        own = _bounded(own + position_variance * error)
        # Without the part of the prior by the position before it.
        model.log_odds[series, i] = own + (own - before) * lean / after
        model.information[series, i] = after
        before = own


@compiled
def _effect_variance(model: Acceptance, series: int, request: Floats) -> float:
    """Returns v, the variance of a request's effect given its outcomes."""
    variance: float = 1 / (request[INFORMATION] + 1 / model.variance[series])
    return variance


@compiled
def learn(model: Acceptance, effects: Floats, outcomes: Ints, num_steps: int) -> None:
    """Updates the estimates from outcomes of drafts, in their order.

    Args:
        model: estimates, changed in place.
        effects: [rows, 2 L, 2], t and m of each request and series, zeros for an unknown request; changed in place.
        outcomes: [n, 6], of a proposer that was asked in a request's step: row of the request, proposer, planned,
            verified and accepted draft tokens, and of trees the accepted nodes as bits.
        num_steps: steps of the server since the last call.
    """
    model.information[:] *= 0.5 ** (num_steps / _POSITION_HALF_LIFE)
    for outcome in outcomes:
        proposer, own, drafted = outcome[PROPOSER], effects[outcome[ROW]], outcome[DRAFTED]
        _observe(model, 2 * proposer, own, outcome[PLANNED], drafted, 0, False)
        is_tree = model.is_tree[proposer]
        _observe(model, 2 * proposer + 1, own, drafted, outcome[ACCEPTED], outcome[NODES], is_tree)


@compiled
def fade(model: Acceptance, requests: Floats, num_tokens: int) -> None:
    """Lets a request's information fade with its output tokens, and the variances of effects follow its effects.

    Args:
        model: estimates, changed in place.
        requests: [2 L, 2], effects and information of the request, changed in place.
        num_tokens: output tokens since the last call.
    """
    half_lives = num_tokens / model.half_life
    kept, weight = 0.5**half_lives, min(half_lives / _VARIANCE_SAMPLES, 1.0)
    for series in range(len(requests)):
        own, variance = requests[series], _effect_variance(model, series, requests[series])
        square = own[EFFECT] * own[EFFECT] + variance
        followed = model.variance[series] + weight * (square - model.variance[series])
        model.variance[series] = max(followed, _MIN_VARIANCE)
        own[INFORMATION] *= kept
        # Its mean over outcomes and prior, of which the outcomes now weigh less.
        own[EFFECT] *= kept * _effect_variance(model, series, own) / variance


@compiled
def expect(model: Acceptance, effects: Floats, rows: Ints, gains: Floats, draft_tokens: Floats) -> None:
    """Writes the expected draft and accepted tokens of n requests, by proposer and position.

    Args:
        model: estimates.
        effects: [rows, 2 L, 2], as for `learn`.
        rows: [n], rows of the requests.
        gains: [L, n, K], written: expected accepted tokens at each position, falling per draft token; 0 beyond K.
        draft_tokens: [L, n, K], written: probability of a draft token at each position; 0 beyond K.
    """
    gains[:] = draft_tokens[:] = 0
    present, accepted = np.empty(gains.shape[2]), np.empty(gains.shape[2])
    for proposer in range(len(gains)):
        _write_odds(model, 2 * proposer, present)
        _write_odds(model, 2 * proposer + 1, accepted)
        for i in range(len(rows)):
            present_effect, effect = effects[rows[i], 2 * proposer, EFFECT], effects[rows[i], 2 * proposer + 1, EFFECT]
            drafted_prob = accepted_prob = 1.0
            for k in range(model.num_positions[proposer]):
                drafted_prob /= 1 + math.exp(-present[k] - present_effect)
                own = 1 / (1 + math.exp(-accepted[k] - effect))
                accepted_prob = min(accepted_prob, own) if model.is_tree[proposer] else accepted_prob * own
                draft_tokens[proposer, i, k], gains[proposer, i, k] = drafted_prob, drafted_prob * accepted_prob
