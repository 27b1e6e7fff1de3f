"""How likely each draft token of each request is to be accepted, learned from what was verified. Imports no vLLM."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.acceptance_counts import (
    PRIOR,
    count_steps,
    of_proposer,
    score_strengths,
)
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows

# Output tokens that a verified draft ages its request's evidence by.
TOKENS_PER_DRAFT = 8.0


class AcceptanceEstimate:
    """Estimates of a[r, i], the probability that draft token i of request r is accepted if all before it are.

    Positions i count from 1 here and from 0 in arrays; constants are in acceptance_counts.py, which computes all
    this. Two levels, both of decayed counts:

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

    **The strength.** How much requests differ is the traffic's nature: s = 2 is right for one half easy and one half
    hard texts, and where all are alike it chases chance. So what becomes of some drafts of each step is compared with
    what each of `strengths` says of it before, and s is their geometric mean, weighted with the probabilities that
    they gave to what came.

    For small offsets and deviations, taken as normal, this is their posterior mean, in which a request's
    counts serve both levels and yet count once: where only position 1 was tried,
    a_r1 = (k_r1 + u m_1) / (n_r1 + u) with 1/u = 1/s + 1/t. They are in the prior, too, as one request's
    among many.
    """

    def __init__(
        self,
        num_positions: int,
        requests: RequestRows,
        *,
        half_life: float = 64.0,
        prior_half_life: float = 4096.0,
        strengths: Sequence[float] = (2.0,),
        initial: float = 0.6,
    ) -> None:
        """Starts with no evidence.

        Args:
            num_positions: positions per draft; what is verified beyond them is ignored.
            requests: whose rows they are; others may share them.
            half_life: tokens in which a request's evidence halves.
            prior_half_life: verified drafts, of all requests, in which the prior's evidence halves.
            strengths: observations that the prior may be worth against a request's own.
            initial: the prior before anything was verified.

        Raises:
            ValueError: names the argument that is out of range.
        """
        if num_positions < 1:
            raise ValueError(f"num_positions is {num_positions}; it must be at least 1")
        for name, value in (("half_life", half_life), *(("strengths", strength) for strength in strengths)):
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if not prior_half_life >= 1:
            raise ValueError(f"prior_half_life is {prior_half_life}; it must be at least 1 draft")
        if not 0 < initial < 1:
            raise ValueError(f"initial is {initial}; it must be a probability, above 0 and below 1")
        self._half_life = float(half_life)
        self._strengths = np.array(strengths, np.float64)
        # Of each: the logarithm of the probability that it gave to what became of drafts; and where to go on with that.
        self._scores, self._next_scored = np.zeros(len(strengths)), 0
        self._strength = float(np.exp(np.log(self._strengths).mean()))
        self._initial = initial
        self._draft_fade = 0.5 ** (TOKENS_PER_DRAFT / half_life)
        self._growth = 2 ** (1 / prior_half_life)
        # The last draft's, in the sums over all requests.
        self._weight = np.ones(1)
        self._sums = np.zeros((4, num_positions))
        self._counts = requests.column(2, num_positions)

    def learn(self, rows: Ints, drafted: Ints, accepted: Ints, num_tokens: Ints) -> None:
        """Learns from steps of n requests in their order: of each its draft, then the growth of its text.

        Args:
            rows: [n], from `RequestRows.add`; a request may be there more than once, its earlier steps first.
            drafted: [n], tokens of each draft; of 0 nothing is learned.
            accepted: [n], how many of them were kept, the first ones.
            num_tokens: [n], output tokens of each.

        Raises:
            ValueError: fewer than 0 or more than `drafted` were accepted; nothing was learned.
        """
        if len(self._strengths) > 1:
            known = *self._learnt, self._initial, self._next_scored, self._scores, self._strengths
            self._next_scored, self._strength = score_strengths(*known, rows, drafted, accepted)
        fading = self._growth, self._draft_fade, self._half_life
        count_steps(*self._learnt, *fading, rows, drafted, accepted, num_tokens)

    @property
    def _learnt(self) -> tuple[Floats, Floats, Floats]:
        return self._counts.values, self._sums, self._weight

    @property
    def state(self) -> tuple[Floats, Floats, Floats, float, float]:
        """The first arguments of `acceptance_counts.chances`; valid until requests are added."""
        return *self._learnt, self._initial, self._strength

    @property
    def prior(self) -> Floats:
        """[num_positions]: m_i, the proposer's running average."""
        prior: Floats = of_proposer(self._sums, self._weight, self._initial)[PRIOR]
        return prior
