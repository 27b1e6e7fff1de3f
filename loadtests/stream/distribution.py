"""Many values in a few figures."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Distribution:
    """Figures of at least one value, in the values' unit. Percentiles are interpolated, as numpy does by default."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def distribution(values: Iterable[float | None]) -> Distribution | None:
    """The figures of the values that are known; None if none is."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, (50, 90, 95, 99)))
    return Distribution(known.size, float(known.mean()), float(known.min()), p50, p90, p95, p99, float(known.max()))
