"""How a load test went, moment by moment. Times are seconds since its beginning."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Shorter spans are moments.
_MOMENT = 1e-6
# On average so many values at least are behind a percentile.
_VALUES = 12


def edges_of(seconds: float, num_bins: int) -> Floats:
    """Edges [num_bins + 1] of bins of one width, from 0."""
    return np.linspace(0.0, max(seconds, _MOMENT), num_bins + 1)


def spread(begins: ArrayLike, ends: ArrayLike, amounts: ArrayLike, edges: Floats) -> Floats:
    """How much of some amounts falls into each bin, if each is spread evenly from its begin to its end.

    Args:
        begins: [n].
        ends: [n], not before them.
        amounts: [n].
        edges: [m + 1] of bins.

    Returns:
        Amounts [m].
    """
    last, whole = np.asarray(ends, np.float64), np.asarray(amounts, np.float64)
    # What comes all at once comes just before its end, so that the bin that ends there has it.
    first = np.minimum(np.asarray(begins, np.float64), last - _MOMENT)
    until = [float((whole * np.clip((edge - first) / (last - first), 0.0, 1.0)).sum()) for edge in edges]
    return np.diff(until)


def mean_number(changes: Sequence[tuple[float, int]], edges: Floats) -> Floats:
    """The mean over each bin of a number that changes at moments.

    Args:
        changes: moments in order, and the number from then on; before it is 0.
        edges: [m + 1] of bins of one width.

    Returns:
        Means [m].
    """
    moments = np.array([*(moment for moment, _ in changes), np.inf]).clip(edges[0], edges[-1])
    spans = np.diff(moments)
    held = spans * np.array([number for _, number in changes], np.float64)
    means: Floats = spread(moments[:-1], moments[1:], held, edges) / (edges[1] - edges[0])
    return means


def percentiles(
    moments: ArrayLike, values: ArrayLike, seconds: float, percents: Sequence[float], most: int
) -> tuple[Floats, Floats]:
    """Percentiles of what began at about the same time.

    Args:
        moments: [n].
        values: [n].
        seconds: of the test.
        percents: which percentiles, [k].
        most: bins; there are fewer where there are few values.

    Returns:
        Middles [m] of the bins with values, and the percentiles [k, m].
    """
    known = np.asarray(values, np.float64)
    edges = edges_of(seconds, min(max(known.size // _VALUES, 1), most))
    places = np.clip(np.searchsorted(edges, np.asarray(moments, np.float64), side="right") - 1, 0, edges.size - 2)
    used = np.unique(places)
    found = [np.percentile(known[places == place], percents) for place in used]
    middles = (edges[:-1] + edges[1:])[used] / 2
    return middles, np.array(found, np.float64).reshape(used.size, len(percents)).T


def ecdf(values: ArrayLike, most: int) -> tuple[Floats, Floats]:
    """The share of values that are no greater, as the corners of a curve of steps.

    Args:
        values: [n].
        most: steps, at least 2; of more values only so many are told, evenly by rank, both ends among them.

    Returns:
        Values and shares, in order; the first share is 0. Nothing without values.
    """
    known = np.sort(np.asarray(values, np.float64))
    ranks = np.unique(np.linspace(0, known.size - 1, min(most, known.size)).astype(np.int64))
    shares = (ranks + 1) / known.size
    return np.concatenate([known[:1], known[ranks]]), np.concatenate([np.zeros_like(known[:1]), shares])
