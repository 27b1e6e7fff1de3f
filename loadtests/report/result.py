"""What a load test found: all that its report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from loadtests.server.counters import ServerCounts
from loadtests.stream.goodput import Slo
from loadtests.stream.summary import Summary, summarise
from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Result:
    """A load test that is over.

    Attributes:
        model: that was asked.
        host: that was asked, without credentials.
        began: date and time.
        started: the same moment, in seconds of the measures' clock.
        options: of the test, without secrets.
        slo: None if there is none.
        measures: of every request that ended, by scenario.
        users: moments in order, by the measures' clock, at which their number changed, and the number from then on.
        in_flight: like `users`, of requests; also of those whose user was stopped meanwhile, which have no measures.
        server: what the server counted meanwhile; None if it does not tell.
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
    server: ServerCounts | None

    @cached_property
    def everything(self) -> list[Measures]:
        """Of all scenarios."""
        return [one for of_scenario in self.measures.values() for one in of_scenario]

    @cached_property
    def total(self) -> Summary:
        """Of all scenarios."""
        return summarise(self.everything, self.slo)

    @cached_property
    def scenarios(self) -> dict[str, Summary]:
        """By name, in the order of the names."""
        return {name: summarise(found, self.slo) for name, found in sorted(self.measures.items())}

    @cached_property
    def seconds(self) -> float:
        """From the beginning to the last request's or user's end."""
        ends = [one.ended for one in self.everything] + [moment for moment, _ in self.users]
        return max(ends, default=self.started) - self.started
