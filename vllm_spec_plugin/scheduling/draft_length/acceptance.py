"""Predicts which draft tokens of a request are accepted, from those that were verified."""

import math
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints, compiled
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows

# Standard deviation of skills over requests, in log-odds.
SPREAD = 1.0
# Information that holds a position's log-odds to those of the position before it, and the first one's to the initial.
LEAN, ANCHOR = 0.25, 1.0
# Steps of the server in which the information of a position halves.
_POSITION_HALF_LIFE = 1024
# Most of log-odds, either way; probabilities at which steps are computed are bounded too.
_MOST_LOG_ODDS, _LEAST_PROB = 7.0, 0.002
# Columns of a request's row.
SKILL, INFORMATION = range(2)


class Ratings(NamedTuple):
    """Estimates of K positions and of all requests.

    Attributes:
        log_odds: [K], b, of an average request.
        information: [K], n, inverse variance of b beyond what position i - 1 says.
        requests: [rows, 2], skill t and information m of each request; zeros are an unknown request.
        initial: [1], log-odds that the first position leans on.
    """

    log_odds: Floats
    information: Floats
    requests: Floats
    initial: Floats


class AcceptanceModel:
    """Rates positions and requests by one scale of log-odds (Rasch, 1960), updated draft by draft (Glickman, 1999).

    Draft token i of request r is accepted with probability

        a_ri = sigmoid(b_i + t_r)

    given that all before it were (chains), or unconditionally (trees, whose positions are nodes). The skill t_r is
    normal around 0 with standard deviation `SPREAD`; b_i leans on the position before it with information l = `LEAN`,
    and the first one on the initial guess with l = `ANCHOR`:

        c_i = (n_i b_i + l c_{i-1}) / (n_i + l)

    A verified token, y = 1 if it was accepted, updates both as an extended Kalman filter does. With w = a (1 - a),
    u = 1 / (n_i + l), v = 1 / (m_r + SPREAD^-2) and s = u + v + 1 / w:

        c_i += u (y - a) / (w s)      n_i += 1 / (v + 1 / w)
        t_r += v (y - a) / (w s)      m_r += 1 / (u + 1 / w)

    So a request of which little is known moves its own skill, and b_i follows what many requests have in common.
    m_r halves in every `half_life` tokens of the request's output: a text that becomes predictable is noticed. n_i
    halves in 1,024 steps, also in those without drafts: what was learned of other traffic is given up for the guess.
    """

    def __init__(
        self, num_positions: int, requests: RequestRows, *, half_life: float, initial: float, is_tree: bool = False
    ) -> None:
        """Starts without observations.

        Args:
            num_positions: K; tokens beyond it are ignored.
            requests: shared by all models.
            half_life: output tokens of a request in which its information halves.
            initial: probability of acceptance before any observation, above 0 and below 1.
            is_tree: whether positions are nodes of a tree.
        """
        self.is_tree = is_tree
        self._half_life = float(half_life)
        initial = math.log(initial / (1 - initial))
        self._log_odds, self._information = np.full(num_positions, initial), np.zeros(num_positions)
        self._initial = np.array([initial])
        self._requests = requests.column(2)

    @property
    def ratings(self) -> Ratings:
        """The estimates, to read; valid until requests are added."""
        return Ratings(self._log_odds, self._information, self._requests.values, self._initial)

    @property
    def average(self) -> Floats:
        """[K]: the probabilities of a request of average skill."""
        average: Floats = 1 / (1 + np.exp(-_smoothed(self.ratings)))
        return average

    def learn(
        self, rows: Ints, drafted: Ints, accepted: Ints, nodes: Ints, num_tokens: Ints, *, num_steps: int = 1
    ) -> None:
        """Updates the estimates from verified steps of n requests, in their order.

        Args:
            rows: [n], from `RequestRows.add`; a request may occur more than once.
            drafted: [n], draft tokens that were verified; 0 teaches nothing.
            accepted: [n], how many of them were accepted; of chains the first ones.
            nodes: [n], of trees, bit i is whether node i was accepted.
            num_tokens: [n], output tokens of the step.
            num_steps: steps of the server since it last learned.
        """
        self._information *= 0.5 ** (num_steps / _POSITION_HALF_LIFE)
        _learn(self.ratings, self.is_tree, self._half_life, rows, drafted, accepted, nodes, num_tokens)


@compiled
def _smoothed(ratings: Ratings) -> Floats:
    """[K]: c, the log-odds of an average request."""
    smoothed, before = np.empty_like(ratings.log_odds), ratings.initial[0]
    for i in range(len(smoothed)):
        before = _own(ratings, i, before)
        smoothed[i] = before
    return smoothed


@compiled
def _own(ratings: Ratings, i: int, before: float) -> float:
    """c_i, from that of the position before it."""
    information, lean = ratings.information[i], LEAN if i else ANCHOR
    own: float = (information * ratings.log_odds[i] + lean * before) / (information + lean)
    return own


@compiled
def _observe(ratings: Ratings, row: int, i: int, before: float, is_accepted: bool) -> None:
    """Updates position i and a request by one token, as the class says.

    Args:
        ratings: changed in place.
        row: of the request.
        i: the position.
        before: c of the position before it.
        is_accepted: y.
    """
    request, information, lean = ratings.requests[row], ratings.information[i], LEAN if i else ANCHOR
    own = _own(ratings, i, before)
    prob = 1 / (1 + math.exp(-own - request[SKILL]))
    prob = min(max(prob, _LEAST_PROB), 1 - _LEAST_PROB)
    noise = 1 / (prob * (1 - prob))
    position_variance, skill_variance = 1 / (information + lean), 1 / (request[INFORMATION] + SPREAD**-2)
    surprise = ((1.0 if is_accepted else 0.0) - prob) * noise / (position_variance + skill_variance + noise)
    request[SKILL] = _bounded(request[SKILL] + skill_variance * surprise)
    request[INFORMATION] += 1 / (position_variance + noise)
    after = information + 1 / (skill_variance + noise)
    # Of all that is known of the position, what is not known by the one before it.
    ratings.log_odds[i] = _bounded(((own + position_variance * surprise) * (after + lean) - lean * before) / after)
    ratings.information[i] = after


@compiled
def _bounded(log_odds: float) -> float:
    return min(max(log_odds, -_MOST_LOG_ODDS), _MOST_LOG_ODDS)


@compiled
def _learn(
    ratings: Ratings,
    is_tree: bool,
    half_life: float,
    rows: Ints,
    drafted: Ints,
    accepted: Ints,
    nodes: Ints,
    num_tokens: Ints,
) -> None:
    num_positions = len(ratings.log_odds)
    for step in range(len(rows)):
        row, before = rows[step], ratings.initial[0]
        # The first token that was rejected is the last one of a chain that tells anything.
        last = drafted[step] if is_tree else min(drafted[step], accepted[step] + 1)
        for i in range(min(last, num_positions)):
            is_accepted = bool(nodes[step] >> i & 1) if is_tree else i < accepted[step]
            _observe(ratings, row, i, before, is_accepted)
            before = _own(ratings, i, before)
        if num_tokens[step]:
            own, kept = ratings.requests[row], 0.5 ** (num_tokens[step] / half_life)
            known = own[INFORMATION]
            own[INFORMATION] = kept * known
            own[SKILL] *= kept * (known + SPREAD**-2) / (kept * known + SPREAD**-2)


@compiled
def expect(
    present: Ratings,
    accepted: Ratings,
    is_tree: bool,
    rows: Ints,
    draft_prob: Floats,
    gains: Floats,
    draft_tokens: Floats,
) -> None:
    """Writes what drafts of n requests are expected to bring, position by position.

    Args:
        present: of draft tokens that were asked for, whether the proposer made them.
        accepted: of draft tokens, whether they were accepted.
        is_tree: whether positions are nodes of a tree.
        rows: [n], of the requests.
        draft_prob: [n], becomes the probability that there is a draft at all.
        gains: [n, >= K], becomes accepted tokens that position k adds; 0 beyond K. Per draft token it falls with k.
        draft_tokens: [n, >= K], becomes the probability that the proposer makes the k-th token; 0 beyond K.
    """
    present_odds, accepted_odds = _smoothed(present), _smoothed(accepted)
    num_positions = len(accepted_odds)
    gains[:, num_positions:] = draft_tokens[:, num_positions:] = 0
    for i in range(len(rows)):
        present_skill, skill = present.requests[rows[i], SKILL], accepted.requests[rows[i], SKILL]
        there = right = 1.0
        for k in range(num_positions):
            there /= 1 + math.exp(-present_odds[k] - present_skill)
            own = 1 / (1 + math.exp(-accepted_odds[k] - skill))
            right = min(right, own) if is_tree else right * own
            draft_tokens[i, k], gains[i, k] = there, there * right
        draft_prob[i] = draft_tokens[i, 0]
