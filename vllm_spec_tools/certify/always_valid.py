"""Always-valid tests of token counts: e-values, whose inverse is a p-value at any stopping time.

An e-value has an expectation of at most 1 where the null hypothesis holds. Taken over time it is a test
martingale or below one, and exceeds 1/a ever with probability at most a (Ville's inequality). So samples may be
looked at after every round, and sampling may stop whenever; nothing is asymptotic, and no token is too rare.
See Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference" (2023).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from vllm_spec_tools.certify.jobs import Tokens

Floats = npt.NDArray[np.float64]
# How far alternatives are from the null: a Dirichlet prior of c observations. Deviations of about 1/sqrt(c).
_CONCENTRATIONS = np.array([10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])
# Tokens at least as likely as the first are distinguished, the others share bins between these bounds: alternatives in
# which every rare token has its own probability would cost more evidence than they find.
_RARE = np.array([1e-2, 1e-3, 1e-4])
# The same for two samples: what is added to each count, so that rare tokens are held to be alike.
_PSEUDOCOUNTS = np.array([3.0, 10.0, 30.0, 100.0])


def mean(log_e_values: Iterable[float]) -> float:
    """The logarithm of the mean of e-values, which is an e-value whatever their dependence; 0 of none."""
    values = np.fromiter(log_e_values, np.float64)
    return float(logsumexp(values) - math.log(len(values))) if len(values) else 0.0


def p_value(log_e: float) -> float:
    """The p-value of an e-value (Markov's inequality)."""
    return math.exp(-max(log_e, 0.0))


def against_probabilities(counts: Mapping[Tokens, Counter[int]], probabilities: Sequence[Floats]) -> Floats:
    """Tests whether tokens follow prefixes with the given probabilities.

    The e-value is the likelihood of the tokens under a Dirichlet prior around the probabilities, over that under the
    probabilities: given the prefixes a martingale in each new token, in any order. Rare tokens are distinguished by the
    magnitude of their probability.

    Args:
        probabilities: per prefix [vocab_size], in the same order.

    Returns:
        Logarithms of the e-values of several concentrations of the prior, the same for all prefixes; infinite if a
        token was impossible. Those of other tokens may be added to them; in the end `mean` is one e-value.
    """
    total = np.zeros(len(_CONCENTRATIONS))
    for seen, row in zip(counts.values(), probabilities, strict=True):
        n, p = _binned(seen, row)
        if (p <= 0).any():
            return np.full_like(total, np.inf)
        c = _CONCENTRATIONS[:, None]
        total += gammaln(c[:, 0]) - gammaln(c[:, 0] + n.sum())
        total += (gammaln(c * p + n) - gammaln(c * p) - n * np.log(p)).sum(1)
    return total


def _binned(seen: Counter[int], row: Floats) -> tuple[Floats, Floats]:
    """Counts and probabilities of the bins that were seen; an impossible token is one of its own."""
    n = np.fromiter(seen.values(), np.float64)
    p = row[np.fromiter(seen, np.int64)]
    own = (p >= _RARE[0]) | (p <= 0)
    bins = [(n[own], p[own])]
    for high, low in zip(_RARE, [*_RARE[1:], 0.0], strict=True):
        if count := n[(p < high) & (p >= max(low, np.finfo(float).tiny))].sum():
            bins.append((np.array([count]), row[(row < high) & (row >= low)].sum(keepdims=True)))
    counts, probabilities = (np.concatenate(part) for part in zip(*bins, strict=True))
    return counts, probabilities


class TwoSamples:
    """Tests whether two sources of tokens are distributed alike after each prefix, pair by pair as they come.

    A pair (x, y) of one token from each multiplies the e-value by f(x) g(y) / (m(x) m(y)), m = (f + g) / 2, where f
    and g are estimates from the pairs before. If both come from one distribution, whichever it is, the
    expectation is E[f/m] E[g/m], at most 1 as the two have the sum 2 (Turner, Ly and Grünwald, "Generic
    E-variables for exact sequential k-sample tests that allow for optional stopping", 2024).
    """

    def __init__(self) -> None:
        self._waiting: dict[Tokens, tuple[list[int], list[int]]] = {}
        self._seen: dict[Tokens, tuple[Counter[int], Counter[int]]] = {}
        self._log_e = np.zeros(len(_PSEUDOCOUNTS))
        self.num_pairs = 0

    def add(self, source: int, prefix: Tokens, token: int) -> None:
        """Adds a token of source 0 or 1, in the order in which they were sampled."""
        waiting = self._waiting.setdefault(prefix, ([], []))
        waiting[source].append(token)
        if waiting[0] and waiting[1]:
            # Taken from the end: which ones are paired does not depend on what they are.
            self._add_pair(prefix, waiting[0].pop(), waiting[1].pop())

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value of all pairs up to now."""
        return mean(self._log_e)

    def _add_pair(self, prefix: Tokens, x: int, y: int) -> None:
        first, second = self._seen.setdefault(prefix, (Counter(), Counter()))
        for own, other, token in ((first, second, x), (second, first, y)):
            average = (own[token] + other[token]) / 2
            self._log_e += np.log((own[token] + _PSEUDOCOUNTS) / (average + _PSEUDOCOUNTS))
        first[x] += 1
        second[y] += 1
        self.num_pairs += 1
