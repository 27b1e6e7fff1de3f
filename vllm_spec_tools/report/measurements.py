"""Measurements in long format: one value per arm, workload, level, round and metric."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PERCENTILES = (50, 95, 99)
# Of Student's distribution, 97.5%, by degrees of freedom; beyond these it is near 2.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


@dataclass(frozen=True)
class Spread:
    """Median and range of the values of several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Returns None of no values."""
        found = list(values)
        return cls(statistics.median(found), min(found), max(found)) if found else None


@dataclass(frozen=True)
class Ratio(Spread):
    """Ratios of two arms, paired by round: median, range and a test.

    Attributes:
        rounds: number of rounds that both arms did.
        interval: 95% confidence interval of the geometric mean (Student's, of the logarithms); None of one round.
    """

    rounds: int
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Ratio | None":
        """Returns None of no values; they are above 0."""
        found = list(values)
        if not found:
            return None
        interval = None
        if len(found) > 1:
            logs = [math.log(value) for value in found]
            mean, student = statistics.fmean(logs), _STUDENT[min(len(found) - 1, len(_STUDENT)) - 1]
            half = student * statistics.stdev(logs) / len(found) ** 0.5
            interval = math.exp(mean - half), math.exp(mean + half)
        return cls(statistics.median(found), min(found), max(found), len(found), interval)

    @property
    def differs(self) -> bool | None:
        """Returns whether the arms differ by more than noise: the interval excludes 1; None of one round."""
        return None if self.interval is None else not self.interval[0] <= 1 <= self.interval[1]


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """Returns p50, p95 and p99, interpolated; None of no values."""
    if len(values) < 2:
        return {f"p{share}": values[0] if values else None for share in PERCENTILES}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {f"p{share}": cuts[share - 1] for share in PERCENTILES}


def show_percentiles(found: Iterable[float | None]) -> str:
    """Formats seconds as milliseconds, with a dash for None."""
    return "/".join("-" if value is None else _three_digits(1e3 * value) for value in found)


def _three_digits(value: float) -> str:
    return f"{value:.{max(2 - math.floor(math.log10(value)), 0) if value > 0 else 0}f}"


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """Divides round by round; None if no round has both."""
    return Ratio.of(ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys()))


def show_spread(spread: Spread | None, factor: float = 1.0, digits: int = 2) -> str:
    """Formats the median and the range, each times `factor`; a dash for None."""
    if spread is None:
        return "-"
    median, low, high = (f"{factor * value:.{digits}f}" for value in (spread.median, spread.low, spread.high))
    # One round has no range.
    return median if spread.low == spread.high else f"{median} ({low}-{high})"


class Measurement(NamedTuple):
    """One value.

    Attributes:
        round: counted from 0; all arms do the same in a round.
        metric: name of the figure; times are in seconds.
    """

    arm: str
    workload: str
    level: float
    round: int
    metric: str
    value: float


class Measurements:
    """Values of all arms, with medians over rounds and ratios taken round by round."""

    def __init__(self) -> None:
        """Starts empty."""
        self._rounds: dict[tuple[str, str, float, str], dict[int, float]] = {}

    def add(self, arm: str, workload: str, level: float, number: int, values: Mapping[str, float | None]) -> None:
        """Adds the metrics of one round; None is not measured."""
        for metric, value in values.items():
            if value is not None:
                self._rounds.setdefault((arm, workload, level, metric), {})[number] = value

    def rows(self) -> Iterator[Measurement]:
        """Yields every value."""
        for (arm, workload, level, metric), rounds in self._rounds.items():
            for number, value in rounds.items():
                yield Measurement(arm, workload, level, number, metric, value)

    def rounds(self, arm: str, workload: str, level: float, metric: str) -> dict[int, float]:
        """Returns the values by round; empty if there are none."""
        return self._rounds.get((arm, workload, level, metric), {})

    def spread(self, arm: str, workload: str, level: float, metric: str) -> Spread | None:
        """Returns the median over rounds; None if there are none."""
        return Spread.of(self.rounds(arm, workload, level, metric).values())

    def median(self, arm: str, workload: str, level: float, metric: str) -> float | None:
        """Returns the median of `spread`."""
        spread = self.spread(arm, workload, level, metric)
        return None if spread is None else spread.median

    def ratio(self, arm: str, other: str, workload: str, level: float, metric: str) -> Ratio | None:
        """Returns an arm's values over another arm's, round by round; None if no round has both."""
        return ratio(self.rounds(arm, workload, level, metric), self.rounds(other, workload, level, metric))

    def mean_ratio(self, pairs: Iterable[tuple[str, str, str, float]], metric: str) -> Ratio | None:
        """Returns the geometric mean over pairs of an arm and another at a workload and level, round by round."""
        found = [
            {n: own / self.rounds(other, workload, level, metric)[n] for n, own in ours.items()}
            for arm, other, workload, level in pairs
            for ours in [self.rounds(arm, workload, level, metric)]
        ]
        return Ratio.of(statistics.geometric_mean(one[n] for one in found) for n in (found[0] if found else ()))

    def as_csv(self) -> str:
        """Returns a line per value, with the columns of `Measurement`."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([Measurement._fields, *self.rows()])
        return written.getvalue()

    def summary(self) -> list[dict[str, object]]:
        """Returns median and range per arm, workload, level and metric, as JSON takes them."""
        keys = ("arm", "workload", "level", "metric")
        spreads = ((key, rounds, Spread.of(rounds.values())) for key, rounds in self._rounds.items())
        return [
            dict(zip(keys, key, strict=True)) | {"rounds": len(rounds)} | vars(spread)
            for key, rounds, spread in spreads
        ]
