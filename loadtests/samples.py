"""Samples of the users of one process, and their way from Locust's workers to its master."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import TypeAdapter

from loadtests.stream.timing import Measures

_MEASURES = TypeAdapter(dict[str, list[Measures]])


class Samples:
    """Measurements by the users of one process. Times are `time.perf_counter` of this process.

    Attributes:
        measures: by scenario, the requests that ended.
        sent: number of requests that were sent.
    """

    current: ClassVar["Samples"]

    def __init__(self) -> None:
        self.measures: dict[str, list[Measures]] = {}
        self.sent = 0
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

    def take(self) -> dict[str, Any]:
        """Removes everything and returns it as plain values, for a message to the master."""
        payload = {
            "offset": self._offset,
            "measures": _MEASURES.dump_python(self.measures, mode="json"),
            "sent": self.sent,
        }
        self.measures, self.sent = {}, 0
        return payload

    def merge(self, payload: Mapping[str, Any]) -> None:
        """Adds what a worker took, with its times moved to this process's clock."""
        shift = float(payload["offset"]) - self._offset
        for scenario, measures in _MEASURES.validate_python(payload["measures"]).items():
            for one in measures:
                self.add(scenario, replace(one, started=one.started + shift, ended=one.ended + shift))
        self.sent += payload["sent"]


Samples.begin()
