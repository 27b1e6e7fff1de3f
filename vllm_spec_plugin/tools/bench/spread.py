"""Medians of rounds, and ratios of arms. Pure."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """None of no values."""
        found = list(values)
        if not found:
            return None
        if len(found) == 1:
            return cls(found[0], found[0], found[0])
        low, median, high = statistics.quantiles(found, n=4, method="inclusive")
        return cls(median, low, high)


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """Ours over theirs, round by round; None if no round has both."""
    return Spread.of(ours[number] / theirs[number] for number in ours.keys() & theirs.keys())


def show_spread(spread: Spread | None, factor: float = 1.0, digits: int = 2) -> str:
    """The median times `factor`, and half the distance of the quartiles; a dash for None."""
    if spread is None:
        return "-"
    text = f"{factor * spread.median:.{digits}f}"
    # One round has no spread.
    if spread.low == spread.high or not spread.median:
        return text
    return f"{text} ±{(spread.high - spread.low) / 2 / spread.median:.0%}"
