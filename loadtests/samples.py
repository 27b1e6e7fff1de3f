"""Samples of the users of one process, and their way from Locust's workers to its master."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

from pydantic import TypeAdapter

from loadtests.stream.timing import Measures

_MEASURES = TypeAdapter(dict[str, list[Measures]])
Change = tuple[float, int]


class Samples:
    """What the users of a process measured. Times are `time.perf_counter` of this process."""

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
            "measures": _MEASURES.dump_python(self.measures, mode="json"),
            "users": self.users,
            "in_flight": self.in_flight,
        }
        self.measures, self.users, self.in_flight = {}, [], []
        return payload

    def merge(self, payload: Mapping[str, Any]) -> None:
        """Adds what a worker took, with its times moved to this process's clock."""
        shift = float(payload["offset"]) - self._offset
        for scenario, measures in _MEASURES.validate_python(payload["measures"]).items():
            for one in measures:
                self.add(scenario, replace(one, started=one.started + shift, ended=one.ended + shift))
        for own, theirs in ((self.users, payload["users"]), (self.in_flight, payload["in_flight"])):
            own += [(when + shift, change) for when, change in theirs]


Samples.begin()


def numbers_over_time(changes: Sequence[Change]) -> list[Change]:
    """Times in order, and the number from each time on."""
    ordered = sorted(changes)
    return list(zip([when for when, _ in ordered], accumulate(change for _, change in ordered), strict=True))
