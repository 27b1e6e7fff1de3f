"""The three times of a request that a report tells most of."""

from collections.abc import Iterable
from dataclasses import dataclass

from loadtests.stream.distribution import Distribution
from loadtests.stream.goodput import Slo
from loadtests.stream.summary import Summary
from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Latency:
    """One of them.

    Attributes:
        key: its name in `Measures`, `Summary` and `Slo`.
        short: for axes and heads of tables.
        title: in full.
    """

    key: str
    short: str
    title: str

    def points(self, measures: Iterable[Measures], started: float) -> tuple[list[float], list[float]]:
        """Moments of start, from `started` on, and values of the requests that succeeded and have one; in seconds."""
        found = [(one.started - started, getattr(one, self.key)) for one in measures if one.error is None]
        known = sorted((moment, value) for moment, value in found if value is not None)
        return [moment for moment, _ in known], [value for _, value in known]

    def distribution(self, summary: Summary) -> Distribution | None:
        """Its figures."""
        found: Distribution | None = getattr(summary, self.key)
        return found

    def limit(self, slo: Slo | None) -> float | None:
        """Its limit, if there is one."""
        found: float | None = getattr(slo, self.key, None)
        return found


LATENCIES = (
    Latency("ttft", "TTFT", "Time to first token"),
    Latency("tpot", "TPOT", "Time per output token"),
    Latency("e2e", "end to end", "End-to-end time"),
)
