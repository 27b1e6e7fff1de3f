"""Samples of the users of one process, and their way from Locust's workers to its master."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any, ClassVar

from loadtests.stream.timing import ErrorKind, Measures

_FIELDS = tuple(field.name for field in fields(Measures))
Change = tuple[float, int]


class Samples:
    """What the users of a process measured. Times are `time.perf_counter` of this process.

    Attributes:
        measures: requests that ended, by scenario.
        users: time and change of the number of users, in no order.
        in_flight: time and change of the number of open requests, in no order.
        current: the samples of the test that runs in this process.
    """

    current: ClassVar["Samples"]

    def __init__(self) -> None:
        self.measures: dict[str, list[Measures]] = {}
        self.users: list[Change] = []
        self.in_flight: list[Change] = []
        # What this process's clock lacks to the wall clock: workers on other hosts have other zeros.
        self._offset = time.time() - time.perf_counter()

    @classmethod
    def begin(cls) -> "Samples":
        """Makes new samples the current ones of this process."""
        cls.current = cls()
        return cls.current

    def add(self, scenario: str, measures: Measures) -> None:
        """Adds a request that ended."""
        self.measures.setdefault(scenario, []).append(measures)

    def count_users(self, change: int) -> None:
        """Counts users that start, or stop if negative."""
        self.users.append((time.perf_counter(), change))

    def count_in_flight(self, change: int) -> None:
        """Counts requests that are sent, or end if negative."""
        self.in_flight.append((time.perf_counter(), change))

    def take(self) -> dict[str, Any]:
        """Removes everything and returns it as plain values, for a message to the master."""
        payload = {
            "offset": self._offset,
            "measures": {
                scenario: [[getattr(one, name) for name in _FIELDS] for one in measures]
                for scenario, measures in self.measures.items()
            },
            "users": self.users,
            "in_flight": self.in_flight,
        }
        self.measures, self.users, self.in_flight = {}, [], []
        return payload

    def merge(self, payload: Mapping[str, Any]) -> None:
        """Adds what a worker took, with its times moved to this process's clock."""
        shift = float(payload["offset"]) - self._offset
        for scenario, rows in payload["measures"].items():
            for row in rows:
                self.add(scenario, _moved(row, shift))
        for own, theirs in ((self.users, payload["users"]), (self.in_flight, payload["in_flight"])):
            own += [(when + shift, change) for when, change in theirs]


Samples.begin()


def numbers_over_time(changes: Sequence[Change]) -> list[Change]:
    """Times in order, and the number from each time on."""
    ordered = sorted(changes)
    return list(zip([when for when, _ in ordered], accumulate(change for _, change in ordered), strict=True))


def _moved(row: Sequence[Any], shift: float) -> Measures:
    """A request from its plain values."""
    one = Measures(*row)
    return replace(
        one,
        started=one.started + shift,
        ended=one.ended + shift,
        error=None if one.error is None else ErrorKind(one.error),
        gaps=tuple(one.gaps),
        tokens_per_chunk=None if one.tokens_per_chunk is None else tuple(one.tokens_per_chunk),
    )
