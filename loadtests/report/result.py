"""The result of a load test: everything that its reports show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtests.server import ServerCounts
from loadtests.stream.summary import Slo, Summary, summarise
from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Result:
    """A finished load test. Times are seconds of the clock of `started`.

    Attributes:
        host: URL of the server, without credentials.
        started: time of the beginning.
        options: options of the test, without secrets.
        slo: None without limits.
        measures: requests that ended, by scenario.
        users: times in order, and the number of users from each time on.
        in_flight: times in order, and the number of open requests from each time on.
        sent: number of requests that were sent; those given up at the end have no measures.
        server: increase of the server's counters; None if its `/metrics` cannot be read.
        workers: number of Locust's worker processes; 0 if there is one process only.
    """

    model: str
    host: str
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

    @property
    def seconds(self) -> float:
        """Time from the beginning to the last end of a request or user."""
        ends = [one.ended for one in self.everything] + [when for when, _ in self.users]
        return max(ends, default=self.started) - self.started

    @property
    def given_up(self) -> int:
        """Number of requests without an end: the test was over first."""
        return self.sent - len(self.everything)

    @property
    def counts_agree(self) -> bool | None:
        """Whether server and clients counted the same requests and tokens; None without the server's counts."""
        server, total = self.server, self.total
        if server is None:
            return None
        counted = (server.requests, server.prompt_tokens, server.output_tokens)
        return counted == (total.succeeded, total.prompt_tokens, total.output_tokens)
