"""The result of a load test: everything that its reports show, and the report as JSON."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from loadtests.report.conclusion import conclusion, counts_agree
from loadtests.server import ServerCounts
from loadtests.stream.summary import Distribution, Slo, Summary, summarise
from loadtests.stream.timing import Measures

SCHEMA = 2
_PACKAGES = ("vllm-spec-plugin", "vllm", "locust")


@dataclass(frozen=True)
class Result:
    """A finished load test. Times are seconds of the clock of `started`.

    Attributes:
        model: name of the model.
        host: URL of the server, without credentials.
        began: date and time of the beginning.
        started: time of the beginning.
        options: options of the test, without secrets.
        slo: None without limits.
        measures: requests that ended, by scenario.
        users: times in order, and the number of users from each time on.
        in_flight: times in order, and the number of open requests from each time on.
        sent: number of requests that were sent; those given up at the end have no measures.
        server: increase of the server's counters; None if its `/metrics` cannot be read.
        workers: number of Locust's worker processes; 0 if there is one process only.
        missing_workers: number of workers whose last samples are missing.
    """

    model: str
    host: str
    began: datetime
    started: float
    options: Mapping[str, Any]
    slo: Slo | None
    measures: Mapping[str, Sequence[Measures]]
    users: Sequence[tuple[float, int]]
    in_flight: Sequence[tuple[float, int]]
    sent: int
    server: ServerCounts | None
    workers: int = 0
    missing_workers: int = 0

    @cached_property
    def everything(self) -> list[Measures]:
        """Requests of all scenarios."""
        return [one for of_scenario in self.measures.values() for one in of_scenario]

    @cached_property
    def total(self) -> Summary:
        """Figures of all scenarios together."""
        return summarise(self.everything, self.slo)

    @cached_property
    def scenarios(self) -> dict[str, Summary]:
        """Figures by scenario, in the order of their names."""
        return {name: summarise(found, self.slo) for name, found in sorted(self.measures.items())}

    @cached_property
    def seconds(self) -> float:
        """Time from the beginning to the last end of a request or user."""
        ends = [one.ended for one in self.everything] + [when for when, _ in self.users]
        return max(ends, default=self.started) - self.started

    @property
    def given_up(self) -> int:
        """Number of requests without an end: the test was over first."""
        return self.sent - len(self.everything)


def as_json(result: Result) -> dict[str, Any]:
    """The report as plain values for `json.dumps`: the conclusion, all figures, and how the test was made."""
    server = result.server
    return {
        "schema": SCHEMA,
        "conclusion": conclusion(result),
        "model": result.model,
        "began": result.began.isoformat(timespec="seconds"),
        "options": {"host": result.host, **result.options},
        "client": {"platform": platform.platform(), "python": platform.python_version(), "versions": _versions()},
        "workers": {"count": result.workers, "missing": result.missing_workers},
        "sent": result.sent,
        "given_up": result.given_up,
        "all": result.total.as_json(),
        "scenarios": {name: summary.as_json() for name, summary in result.scenarios.items()},
        "server": None
        if server is None
        else asdict(server)
        | {
            "acceptance_rate": server.acceptance_rate,
            "acceptance_length": server.acceptance_length,
            "agrees_with_clients": counts_agree(result),
        },
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Latency:
    """A time of a request that reports show in detail.

    Attributes:
        key: name in `Measures`, `Summary` and `Slo`.
        short: name for axes and table heads.
        title: full name.
    """

    key: str
    short: str
    title: str

    def points(self, measures: Iterable[Measures], started: float) -> tuple[list[float], list[float]]:
        """Start times, counted from `started`, and values of the successes that have one; in seconds."""
        found = [(one.started - started, getattr(one, self.key)) for one in measures if one.error is None]
        known = sorted((when, value) for when, value in found if value is not None)
        return [when for when, _ in known], [value for _, value in known]

    def distribution(self, summary: Summary) -> Distribution | None:
        """Its distribution; None without values."""
        found: Distribution | None = getattr(summary, self.key)
        return found

    def limit(self, slo: Slo | None) -> float | None:
        """Its limit in an SLO; None if not limited."""
        found: float | None = getattr(slo, self.key, None)
        return found


LATENCIES = (
    Latency("ttft", "TTFT", "Time to first token"),
    Latency("tpot", "TPOT", "Time per output token"),
    Latency("e2e", "end to end", "End-to-end time"),
)
