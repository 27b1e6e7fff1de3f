"""Predicts the acceptance of a request's draft tokens from verified ones."""

import math
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints, compiled
from vllm_spec_plugin.policy.request_index import RequestRows

# Variance of effects over requests, in squared log-odds: before any observation, and the least that is learned.
VARIANCE, _MIN_VARIANCE = 1.0, 0.25
# The variance follows this many half-lives of requests.
_VARIANCE_SAMPLES = 8
# Prior information: of a position's log-odds being those of the position before it, the first one's the initial ones.
LEAN, ANCHOR = 0.25, 1.0
# Steps of the server in which the information of a position halves.
_POSITION_HALF_LIFE = 1024
# Bounds of log-odds on both sides, and of the probabilities that updates are computed at.
_MAX_LOG_ODDS, _MIN_PROB = 7.0, 0.002
# Columns of a request's row.
EFFECT, INFORMATION = range(2)


class Effects(NamedTuple):
    """Estimates of K positions and of all requests.

    Attributes:
        log_odds: [K], b: log-odds of acceptance for an average request.
        information: [K], n: inverse variance of b, without that of the prior by position i - 1.
        requests: [rows, 2], effect t and information m of each request; zeros for an unknown one.
        initial: [1], prior log-odds of the first position.
        variance: [1], S: variance of effects over requests.
    """

    log_odds: Floats
    information: Floats
    requests: Floats
    initial: Floats
    variance: Floats


class AcceptanceModel:
    """Rates positions and requests by one scale of log-odds (Rasch, 1960), updated draft by draft (Glickman, 1999).

    Draft token i of request r is accepted with probability

        a_ri = sigmoid(b_i + t_r)

    given that all before it were (chains), or unconditionally (trees, whose positions are nodes). The effect t_r is
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
    """

    def __init__(
        self, num_positions: int, requests: RequestRows, *, half_life: float, initial: float, is_tree: bool = False
    ) -> None:
        """Starts without observations.

        Args:
            num_positions: K, maximum draft tokens; later ones are ignored.
            requests: rows of the requests, shared by all models.
            half_life: output tokens of a request in which its information halves.
            initial: probability of acceptance before any observation, above 0 and below 1.
            is_tree: whether positions are nodes of a tree.
        """
        self.is_tree = is_tree
        self._half_life = float(half_life)
        initial = math.log(initial / (1 - initial))
        self._log_odds, self._information = np.full(num_positions, initial), np.zeros(num_positions)
        self._initial, self._variance = np.array([initial]), np.array([VARIANCE])
        self._requests = requests.column(2)

    @property
    def effects(self) -> Effects:
        """The estimates, read-only; valid until requests are added."""
        return Effects(self._log_odds, self._information, self._requests.values, self._initial, self._variance)

    @property
    def average(self) -> Floats:
        """[K], probabilities of acceptance for an average request."""
        average: Floats = 1 / (1 + np.exp(-_smoothed(self.effects)))
        return average

    def learn(
        self, rows: Ints, drafted: Ints, accepted: Ints, nodes: Ints, num_tokens: Ints, *, num_steps: int = 1
    ) -> None:
        """Updates the estimates from verified steps of n requests, in their order.

        Args:
            rows: [n], from `RequestRows.add`; a request may occur more than once.
            drafted: [n], number of verified draft tokens; 0 changes no estimate.
            accepted: [n], number of accepted draft tokens; of chains the first ones.
            nodes: [n], of trees, bit i is whether node i was accepted.
            num_tokens: [n], number of output tokens.
            num_steps: steps of the server since the last call.
        """
        self._information *= 0.5 ** (num_steps / _POSITION_HALF_LIFE)
        _learn(self.effects, self.is_tree, self._half_life, rows, drafted, accepted, nodes, num_tokens)


@compiled
def _smoothed(effects: Effects) -> Floats:
    """Returns [K], c: the log-odds of an average request."""
    smoothed, before = np.empty_like(effects.log_odds), effects.initial[0]
    for i in range(len(smoothed)):
        before = _own(effects, i, before)
        smoothed[i] = before
    return smoothed


@compiled
def _own(effects: Effects, i: int, before: float) -> float:
    """Returns c_i, given that of the position before it."""
    information, lean = effects.information[i], LEAN if i else ANCHOR
    own: float = (information * effects.log_odds[i] + lean * before) / (information + lean)
    return own


@compiled
def _observe(effects: Effects, row: int, i: int, before: float, is_accepted: bool) -> float:
    """Updates position i and a request by one token, and returns c_i; equations in `AcceptanceModel`.

    Args:
        effects: estimates, changed in place.
        row: row of the request.
        i: index of the position.
        before: c of the position before it.
        is_accepted: y.
    """
    request, information, lean = effects.requests[row], effects.information[i], LEAN if i else ANCHOR
    own, effect = _own(effects, i, before), request[EFFECT]
    position_variance, effect_variance = 1 / (information + lean), _effect_variance(effects, row)
    prob = 1 / (1 + math.exp(-own - effect))
    prob = min(max(prob, _MIN_PROB), 1 - _MIN_PROB)
    weight = prob * (1 - prob)
    error = ((1.0 if is_accepted else 0.0) - prob) / (1 + weight * (position_variance + effect_variance))
    request[EFFECT] = _bounded(effect + effect_variance * error)
    request[INFORMATION] += weight / (1 + weight * position_variance)
    after = information + weight / (1 + weight * effect_variance)
    own = _bounded(own + position_variance * error)
    # Without the part of the prior by the position before it.
    effects.log_odds[i] = own + (own - before) * lean / after
    effects.information[i] = after
    return own


@compiled
def _effect_variance(effects: Effects, row: int) -> float:
    """Returns v, the variance of a request's effect given its outcomes."""
    variance: float = 1 / (effects.requests[row, INFORMATION] + 1 / effects.variance[0])
    return variance


@compiled
def _bounded(log_odds: float) -> float:
    return min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)


@compiled
def _learn(
    effects: Effects,
    is_tree: bool,
    half_life: float,
    rows: Ints,
    drafted: Ints,
    accepted: Ints,
    nodes: Ints,
    num_tokens: Ints,
) -> None:
    num_positions = len(effects.log_odds)
    for step in range(len(rows)):
        row, before = rows[step], effects.initial[0]
        # Tokens of a chain after the first rejected one are no observations.
        last = drafted[step] if is_tree else min(drafted[step], accepted[step] + 1)
        for i in range(min(last, num_positions)):
            is_accepted = bool(nodes[step] >> i & 1) if is_tree else i < accepted[step]
            before = _observe(effects, row, i, before, is_accepted)
        if num_tokens[step]:
            own, variance = effects.requests[row], _effect_variance(effects, row)
            half_lives = num_tokens[step] / half_life
            weight = min(half_lives / _VARIANCE_SAMPLES, 1.0)
            effects.variance[0] += weight * (own[EFFECT] * own[EFFECT] + variance - effects.variance[0])
            effects.variance[0] = max(effects.variance[0], _MIN_VARIANCE)
            kept = 0.5**half_lives
            own[INFORMATION] *= kept
            # Its mean over outcomes and prior, of which the outcomes now weigh less.
            own[EFFECT] *= kept * _effect_variance(effects, row) / variance


@compiled
def expect(
    present: Effects,
    accepted: Effects,
    is_tree: bool,
    rows: Ints,
    draft_prob: Floats,
    gains: Floats,
    draft_tokens: Floats,
) -> None:
    """Writes the expected draft and accepted tokens of n requests, by position.

    Args:
        present: effects of planned tokens being drafted.
        accepted: effects of draft tokens being accepted.
        is_tree: whether positions are nodes of a tree.
        rows: [n], rows of the requests.
        draft_prob: [n], written: probability of a draft with at least one token.
        gains: [n, >= K], written: expected accepted tokens at each position, falling per draft token; 0 beyond K.
        draft_tokens: [n, >= K], written: probability of a draft token at each position; 0 beyond K.
    """
    present_odds, accepted_odds = _smoothed(present), _smoothed(accepted)
    num_positions = len(accepted_odds)
    gains[:, num_positions:] = draft_tokens[:, num_positions:] = 0
    for i in range(len(rows)):
        present_effect, effect = present.requests[rows[i], EFFECT], accepted.requests[rows[i], EFFECT]
        drafted_prob = accepted_prob = 1.0
        for k in range(num_positions):
            drafted_prob /= 1 + math.exp(-present_odds[k] - present_effect)
            own = 1 / (1 + math.exp(-accepted_odds[k] - effect))
            accepted_prob = min(accepted_prob, own) if is_tree else accepted_prob * own
            draft_tokens[i, k], gains[i, k] = drafted_prob, drafted_prob * accepted_prob
        draft_prob[i] = draft_tokens[i, 0]
