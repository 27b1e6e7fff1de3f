"""Always-valid tests of token counts: e-values, whose inverse is a p-value at any stopping time.

An e-value has an expectation of at most 1 where the null hypothesis holds. Taken over time it is a test
martingale or below one, and exceeds 1/a ever with probability at most a (Ville's inequality). So samples may be
looked at after every round, and sampling may stop whenever; nothing is asymptotic, and no token is too rare.
See Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference" (2023).

E-values of tokens that are each counted once may be multiplied: the tokens come one after the other, and each has the
target's probabilities given all before it. Others may only be averaged, with weights that are fixed before the first
token: a mean over those that have been seen so far is no martingale.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.special import gammaln, logsumexp

from vllm_spec_tools.certify.target_probabilities import LISTED, Floats, Row
from vllm_spec_tools.engines.jobs import Tokens

# How far alternatives are from the null: a Dirichlet prior of c observations. Deviations of about 1/sqrt(c).
CONCENTRATIONS = np.array([10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])
# Tokens at least as likely as the first are distinguished, the others share bins between these bounds: alternatives in
# which every rare token has its own probability would cost more evidence than they find.
_RARE = (1e-2, 1e-3, LISTED)
# The same for two samples: what is added to each count, so that rare tokens are held to be alike.
_PSEUDOCOUNTS = np.array([3.0, 10.0, 30.0, 100.0])


def mean(log_e_values: Iterable[float]) -> float:
    """Returns the logarithm of the mean of e-values, which is an e-value whatever their dependence; 0 of none."""
    values = np.fromiter(log_e_values, np.float64)
    return float(logsumexp(values) - math.log(len(values))) if len(values) else 0.0


def p_value(log_e: float) -> float:
    """The p-value of an e-value (Markov's inequality)."""
    return math.exp(-max(log_e, 0.0))


def against_probabilities(counts: Mapping[Tokens, Counter[int]], rows: Mapping[Tokens, Row]) -> Floats:
    """Tests whether tokens follow prefixes with the given probabilities.

    The e-value is the likelihood of the tokens under a Dirichlet prior around the probabilities, over that under the
    probabilities: given the prefixes a martingale in each new token, in any order. Rare tokens are distinguished by the
    magnitude of their probability.

    Args:
        counts: per prefix, how often each token followed.
        rows: probabilities by prefix; other prefixes are not tested.

    Returns:
        Logarithms of the e-values of several concentrations of the prior, the same for all prefixes; infinite if a
        token was impossible. Those of other tokens may be added to them; in the end `mean` is one e-value.
    """
    total = np.zeros(len(CONCENTRATIONS))
    for prefix, seen in counts.items():
        if prefix not in rows:
            continue
        n, p = _binned(seen, rows[prefix])
        if (p <= 0).any():
            return np.full_like(total, np.inf)
        if n.sum() == 1:
            continue  # One token is no evidence.
        c = CONCENTRATIONS[:, None]
        total += gammaln(c[:, 0]) - gammaln(c[:, 0] + n.sum())
        total += (gammaln(c * p + n) - gammaln(c * p) - n * np.log(p)).sum(1)
    return total


def _binned(seen: Counter[int], row: Row) -> tuple[Floats, Floats]:
    """Counts and probabilities of the bins that were seen; impossible tokens are one of their own."""
    counts = dict[tuple[str, int], int]()
    probs = dict[tuple[str, int], float]()
    for token_id, count in seen.items():
        p = row.prob(token_id)
        if p is None or p < LISTED:
            key, mass = ("rare", len(_RARE)), row.rest + float(row.probs[row.probs < LISTED].sum())
            mass = 0.0 if p is None and not row.rest else mass
        elif p >= _RARE[0]:
            key, mass = ("token", token_id), p
        else:
            place = 1 if p >= _RARE[1] else 2
            key, low = ("rare", place), _RARE[place]
            mass = float(row.probs[(row.probs >= low) & (row.probs < _RARE[place - 1])].sum())
        if mass <= 0:
            key = ("impossible", 0)
        counts[key] = counts.get(key, 0) + count
        probs[key] = mass
    return np.array(list(counts.values()), np.float64), np.array(list(probs.values()))


class TwoSamples:
    """Tests whether two sources of tokens are distributed alike after each prefix, pair by pair as they come.

    A pair (x, y) of one token from each multiplies the e-value by f(x) g(y) / (m(x) m(y)), m = (f + g) / 2, where f
    and g are estimates from the pairs before. If both come from one distribution, whichever it is, the
    expectation is E[f/m] E[g/m], at most 1 as the two have the sum 2 (Turner, Ly and Grünwald, "Generic
    E-variables for exact sequential k-sample tests that allow for optional stopping", 2024).
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[Tokens, Tokens], tuple[list[int], list[int]]] = {}
        self._seen: dict[tuple[Tokens, Tokens], tuple[Counter[int], Counter[int]]] = {}
        self._log_e = np.zeros(len(_PSEUDOCOUNTS))
        self.num_pairs = 0

    def add(self, source: int, text: tuple[Tokens, Tokens], token: int) -> None:
        """Adds a token of source 0 or 1 after a prompt and prefix, in the order in which they were sampled."""
        waiting = self._waiting.setdefault(text, ([], []))
        waiting[source].append(token)
        if waiting[0] and waiting[1]:
            # Taken from the end: which ones are paired does not depend on what they are.
            self._add_pair(text, waiting[0].pop(), waiting[1].pop())

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value of all pairs up to now."""
        return mean(self._log_e)

    def _add_pair(self, text: tuple[Tokens, Tokens], x: int, y: int) -> None:
        first, second = self._seen.setdefault(text, (Counter(), Counter()))
        for own, other, token in ((first, second, x), (second, first, y)):
            average = (own[token] + other[token]) / 2
            self._log_e += np.log((own[token] + _PSEUDOCOUNTS) / (average + _PSEUDOCOUNTS))
        first[x] += 1
        second[y] += 1
        self.num_pairs += 1
