"""p-values without scipy: the tests that use them also run where only torch, numpy and pytest are installed."""

import numpy as np
import torch


def chi_square(observed, expected):
    """Pearson's chi-square test of counts against expected counts, which are scaled to the same total."""
    observed = np.asarray(observed, dtype=np.float64)
    expected = np.asarray(expected, dtype=np.float64) * observed.sum() / np.sum(expected)
    statistic, freedom = ((observed - expected) ** 2 / expected).sum(), len(observed) - 1
    tail = torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(statistic / 2).double())
    return float(tail)
