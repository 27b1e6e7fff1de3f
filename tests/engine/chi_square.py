"""Chi-square tests of continuations, position by position, given what came before.

Given the prefixes that were seen, the tokens that follow each are an independent multinomial sample.
So the statistics of all prefixes, and their degrees of freedom, add up to one test per position.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from vllm_spec_tools.engines.jobs import Tokens

Floats = npt.NDArray[np.float64]

_LEAST_EXPECTED = 5.0
# A rare prefix is no test by itself. All of a position's are tested together, tokens distinguished by the
# rank of their probability: bounds of the rank classes.
_RANKS = (0, 1, 2, 4, 8, 16, 32, 128)
_RARE = 20


@dataclass(frozen=True)
class Test:
    """A chi-square statistic; sums of independent ones are one again."""

    statistic: float = 0.0
    freedom: int = 0

    def __add__(self, other: "Test") -> "Test":
        return Test(self.statistic + other.statistic, self.freedom + other.freedom)

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least as large by chance; 1 where there was nothing to test."""
        return float(chi2.sf(self.statistic, self.freedom)) if self.freedom else 1.0


def against_probabilities(counts: Mapping[Tokens, Counter[int]], probabilities: Sequence[Floats] | Floats) -> Test:
    """Whether tokens follow prefixes with the given probabilities.

    Tokens that are expected fewer than 5 times are one bin. The pooled test of the rare prefixes adds
    up multinomials with different probabilities, which vary less than one: it errs on the safe side.

    Args:
        probabilities: [len(counts), vocab_size], in the same order.
    """
    total = Test()
    size = max((len(row) for row in probabilities), default=0)
    bounds = np.array([rank for rank in _RANKS if rank < max(size, 1)])
    pooled_observed, pooled_expected = np.zeros(len(bounds)), np.zeros(len(bounds))
    for seen, row in zip(counts.values(), probabilities, strict=True):
        expected = row * seen.total()
        observed = np.zeros_like(expected)
        observed[list(seen)] = list(seen.values())
        if seen.total() >= _RARE:
            total += _pearson(observed, expected)
        else:
            order = np.argsort(-expected, kind="stable")
            pooled_observed += np.add.reduceat(observed[order], bounds)
            pooled_expected += np.add.reduceat(expected[order], bounds)
    return total + _pearson(pooled_observed, pooled_expected)


def _pearson(observed: Floats, expected: Floats) -> Test:
    frequent = np.flatnonzero(expected >= _LEAST_EXPECTED)
    bins = [(observed[i], expected[i]) for i in frequent]
    rest = (observed.sum() - observed[frequent].sum(), expected.sum() - expected[frequent].sum())
    if rest[1] >= _LEAST_EXPECTED:
        bins.append(rest)
    elif bins:
        smallest = min(range(len(bins)), key=lambda i: bins[i][1])
        bins[smallest] = (bins[smallest][0] + rest[0], bins[smallest][1] + rest[1])
    if len(bins) < 2:
        return Test()
    return Test(sum((o - e) ** 2 / e for o, e in bins), len(bins) - 1)
