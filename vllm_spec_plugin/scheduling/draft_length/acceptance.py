"""How likely each draft token of each request is to be accepted, learned from what was verified. Imports no vLLM."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST, MOST = 0.001, 0.999
# Observations that the prior's start, and a position's lean on the one before it, are worth.
PRIOR_WEIGHT = 4.0
# How much more firmly a position is held to its request than a request to the proposer.
FIRMNESS = 8.0
# Output tokens that a verified draft ages its request's evidence by.
TOKENS_PER_DRAFT = 8.0
_FIRST_ROWS = 64
_MOST_WEIGHT = 1e30
# The row of all requests without evidence; nothing is ever written to it.
_NOTHING = 0


class AcceptanceEstimate:
    """Estimates of a[r, i], the probability that draft token i of request r is accepted if all before it are.

    Positions i count from 1 here and from 0 in arrays. Two levels, both of decayed counts:

    **The proposer.** n_i and k_i count how often position i was tried and accepted, in whatever request;
    they fade by half per `prior_half_life` verified drafts. The prior is their running average, and a
    position that is seldom tried leans on the one before it, with w = `PRIOR_WEIGHT`:

        m_i = (k_i + w m_{i-1}) / (n_i + w),    m_0 = `initial`

    Later positions are reached by better requests, so m_i is right for a request of which nothing is known
    but that it reached i, and too good for one that is known to be average. Over the drafts that n_i
    counts, with their weights, g_i and h_i add up k_r1 and n_r1 as they were before each draft, which says
    how good at position 1 the requests are that reach i. The rates of an average request are then b_i:

        l_i = (n_i g_i / h_i + w l_{i-1}) / (n_i + w),    l_0 = `initial`
        odds(b_i) = odds(m_i) odds(l_1) / odds(l_i)

    **The request.** n_ri and k_ri count the same in one request. They fade by half per `half_life` tokens
    of its text, and a verified draft counts as `TOKENS_PER_DRAFT` more: by its text alone a request whose
    drafts are rejected, which grows by few tokens per draft, would remember far more drafts than others,
    and take long to show that it became predictable.

    A request differs from an average one by an offset in log-odds that all its positions share, and each
    position by a deviation of its own. s = `strength` pseudo-observations hold the offset to 0,
    t = `FIRMNESS` s hold the deviation to 0. However often a position was tried, its deviation does not
    average out, so it is worth e_ri < t observations of the offset:

        e_ri = n_ri t / (n_ri + t)
        N = s + sum_i e_ri
        A = s b_1 + sum_i e_ri k_ri / n_ri        accepted of N
        M = s b_1 + sum_i e_ri b_i                accepted of N, were the request average
        exp(offset_r) = (A / (N - A)) / (M / (N - M))
        1 / odds(c_ri) = ((1 - s/N) / odds(b_i) + s/N / odds(m_i)) / exp(offset_r)
        a_ri = (k_ri + t c_ri) / (n_ri + t)

    For small offsets and deviations, taken as normal, this is their posterior mean, in which a request's
    counts serve both levels and yet count once: where only position 1 was tried,
    a_r1 = (k_r1 + u m_1) / (n_r1 + u) with 1/u = 1/s + 1/t. They are in the prior, too, as one request's
    among many.
    """

    def __init__(
        self,
        num_positions: int,
        *,
        half_life: float = 64.0,
        prior_half_life: float = 4096.0,
        strength: float = 2.0,
        initial: float = 0.6,
    ) -> None:
        """Starts with no evidence.

        Args:
            num_positions: positions per draft; what is verified beyond them is ignored.
            half_life: tokens in which a request's evidence halves.
            prior_half_life: verified drafts, of all requests, in which the prior's evidence halves.
            strength: observations that the prior is worth against a request's own.
            initial: the prior before anything was verified.

        Raises:
            ValueError: names the argument that is out of range.
        """
        if num_positions < 1:
            raise ValueError(f"num_positions is {num_positions}; it must be at least 1")
        for name, value in (("half_life", half_life), ("strength", strength)):
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if not prior_half_life >= 1:
            raise ValueError(f"prior_half_life is {prior_half_life}; it must be at least 1 draft")
        if not 0 < initial < 1:
            raise ValueError(f"initial is {initial}; it must be a probability, above 0 and below 1")
        self._half_life = half_life
        self._strength = strength
        self._initial = initial
        self._firmness = FIRMNESS * strength
        self._draft_fade = 0.5 ** (TOKENS_PER_DRAFT / half_life)
        self._prior_growth = 2 ** (1 / prior_half_life)
        self._num_positions = num_positions
        self._outcomes = _outcomes(num_positions)
        # Per outcome: the weights of the drafts that had it, and those times k_r1 and n_r1. Later drafts get greater
        # weights instead of earlier ones fading.
        self._weight = 1.0
        self._drafts, self._good, self._known = ([0.0] * len(self._outcomes) for _ in range(3))
        self._shared: Floats | None = None
        # Tried and accepted, in this order.
        self._counts = np.zeros((_FIRST_ROWS, 2, num_positions))
        # Views of `_counts`: to index the array would cost as much as to update it.
        self._rows = list(self._counts)
        self._free = list(range(_FIRST_ROWS - 1, _NOTHING, -1))
        self._row_of: dict[str, int] = {}

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """Learns from one verified draft.

        Args:
            request_id: the draft's request.
            drafted: tokens of the draft; of 0 nothing is learned.
            accepted: how many of them were kept, the first ones. Positions 1 to
                min(accepted + 1, drafted) were tried.

        Raises:
            ValueError: fewer than 0 or more than `drafted` were accepted.
        """
        if not 0 <= accepted <= drafted:
            raise ValueError(f"request {request_id}: {accepted} accepted tokens of a draft of {drafted} can't be")
        if not drafted:
            return
        row = self._row_of.get(request_id)
        if row is None:
            row = self._row_of[request_id] = self._free_row()
        outcome = min(accepted, self._num_positions)
        if accepted < drafted:
            outcome += self._num_positions + 1

        own = self._rows[row]
        weight = self._weight = self._weight * self._prior_growth
        self._drafts[outcome] += weight
        self._good[outcome] += weight * own.item(self._num_positions)
        self._known[outcome] += weight * own.item(0)
        self._shared = None
        if weight > _MOST_WEIGHT:
            self._rescale()

        own *= self._draft_fade
        own += self._outcomes[outcome]

    def advance(self, request_id: str, num_tokens: int) -> None:
        """Lets a request's evidence fade as its text grows.

        Args:
            request_id: any request.
            num_tokens: output tokens of a step, with or without a draft.
        """
        row = self._row_of.get(request_id)
        if row is not None:
            counts = self._rows[row]
            counts *= 0.5 ** (num_tokens / self._half_life)

    def forget(self, request_id: str) -> None:
        """Drops a request's evidence; the prior keeps what it learned from it."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            self._rows[row].fill(0)
            self._free.append(row)

    def rates(self, request_ids: Sequence[str]) -> Floats:
        """[len(request_ids), num_positions]: a[r, i]; the prior for requests that nothing is known of."""
        rows = np.fromiter(map(self._row_of.get, request_ids, repeat(_NOTHING)), np.intp, len(request_ids))
        # Positions first: requests are many, and what lies side by side is fast.
        counts = self._counts.take(rows, axis=0).transpose(1, 2, 0).copy()
        tried, accepted = counts
        strength, firmness = self._strength, self._firmness
        _, average, prior_against, average_against = self._of_proposer()
        held = tried + firmness
        worth = counts * (firmness / held)
        total, seen = np.add.reduce(worth, axis=1)
        foreseen = average @ worth[0]
        total += strength
        seen += strength * average[0]
        foreseen += strength * average[0]
        against = foreseen * (total - seen) / (seen * (total - foreseen))
        unknown = against * (strength / total)
        # In place from (1 - c) / c to a.
        rates: Floats = average_against[:, None] * (against - unknown)
        rates += prior_against[:, None] * unknown
        rates += 1
        np.divide(firmness, rates, out=rates)
        rates += accepted
        rates /= held
        np.maximum(rates, LEAST, out=rates)
        np.minimum(rates, MOST, out=rates)
        return rates.T

    @property
    def prior(self) -> Floats:
        """[num_positions]: m_i, the proposer's running average."""
        prior: Floats = self._of_proposer()[0].copy()
        return prior

    def _of_proposer(self) -> Floats:
        """[4, num_positions]: m, b, and the odds against each."""
        if self._shared is None:
            by_outcome = np.array([self._drafts, self._good, self._known])
            sums = (by_outcome @ self._outcomes.reshape(len(self._outcomes), -1)).reshape(3, 2, -1).tolist()
            (all_tried, all_accepted), (all_good, _), (all_known, _) = sums
            lean = PRIOR_WEIGHT * self._weight
            rate = level = self._initial
            prior, levels = [], []
            for tried, accepted, good, known in zip(all_tried, all_accepted, all_good, all_known, strict=True):
                rate = _inside((accepted + lean * rate) / (tried + lean))
                if known:
                    level = _inside((tried * good / known + lean * level) / (tried + lean))
                prior.append(rate)
                levels.append(level)
            prior_against = [1 / rate - 1 for rate in prior]
            first = 1 / levels[0] - 1
            average_against = [
                against * first * level / (1 - level) for against, level in zip(prior_against, levels, strict=True)
            ]
            average = [1 / (1 + against) for against in average_against]
            self._shared = np.array([prior, average, prior_against, average_against])
        return self._shared

    def _rescale(self) -> None:
        for by_outcome in (self._drafts, self._good, self._known):
            by_outcome[:] = [weight / self._weight for weight in by_outcome]
        self._weight = 1.0

    def _free_row(self) -> int:
        if not self._free:
            num_rows = len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._rows = list(self._counts)
            self._free = list(range(2 * num_rows - 1, num_rows - 1, -1))
        return self._free.pop()


def _outcomes(num_positions: int) -> Floats:
    """What a draft adds to the counts, by its outcome.

    Returns:
        [2 * num_positions + 2, 2, num_positions]: tried and accepted, for drafts of which 0, 1, ...
        num_positions tokens were accepted and none rejected, then for those with a token rejected after them.
    """
    before = np.tri(num_positions + 2, num_positions, -1)
    kept = np.stack([before[:-1], before[:-1]], axis=1)
    rejected = np.stack([before[1:], before[:-1]], axis=1)
    return np.concatenate([kept, rejected])


def _inside(rate: float) -> float:
    # Without min and max, which take longer.
    return LEAST if rate < LEAST else MOST if rate > MOST else rate
