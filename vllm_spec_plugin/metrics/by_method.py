"""Counters by method."""

from collections.abc import Iterable
from typing import Any, Self

from vllm_spec_plugin.metrics.counters import StepCounters


class CountersByMethod:
    """Keeps one `StepCounters` per method, created at the first access.

    Counts for a whole cascade have the method `cascade`.
    """

    def __init__(self, steps: Iterable[StepCounters] = ()) -> None:
        """Adds up `steps`."""
        self._by_method: dict[str, StepCounters] = {}
        for step in steps:
            self.of(step.method).add(step)

    def __bool__(self) -> bool:
        """Whether any counters exist."""
        return bool(self._by_method)

    def of(self, method: str) -> StepCounters:
        """Returns the counters of one method, to be changed in place."""
        counters = self._by_method.get(method)
        if counters is None:
            counters = self._by_method[method] = StepCounters(method)
        return counters

    def add(self, other: Self) -> None:
        """Adds all counters of another object."""
        for method, step in other._by_method.items():
            self.of(method).add(step)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles only counts that are not zero, to keep messages between processes small."""
        return CountersByMethod.from_payload, (self.to_payload(),)

    def to_payload(self) -> list[dict[str, Any]]:
        """Returns plain values for sending between processes; empty if there are no counters."""
        return [step.to_payload() for step in self._by_method.values()]

    def take_payload(self) -> list[dict[str, Any]]:
        """Returns `to_payload`, and clears the counters."""
        payload = self.to_payload()
        self.clear()
        return payload

    def clear(self) -> None:
        """Removes all counters."""
        self._by_method = {}

    @classmethod
    def from_payload(cls, payload: list[dict[str, Any]]) -> Self:
        """The inverse of `to_payload`."""
        return cls(StepCounters.from_payload(step) for step in payload)
