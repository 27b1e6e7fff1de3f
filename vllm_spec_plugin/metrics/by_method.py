"""Counters of several proposers side by side."""

from collections.abc import Iterable
from typing import Any, Self

from vllm_spec_plugin.metrics.counters import StepCounters


class CountersByMethod:
    """One `StepCounters` per method, made when it is first asked for.

    What belongs to no single proposer of a cascade is counted by the cascade's own name.
    """

    def __init__(self, steps: Iterable[StepCounters] = ()) -> None:
        """Adds up `steps`."""
        self._by_method: dict[str, StepCounters] = {}
        for step in steps:
            self.of(step.method).add(step)

    def __bool__(self) -> bool:
        """Whether anything was ever asked for."""
        return bool(self._by_method)

    def of(self, method: str) -> StepCounters:
        """Those of one method, to be changed in place."""
        counters = self._by_method.get(method)
        if counters is None:
            counters = self._by_method[method] = StepCounters(method)
        return counters

    def add(self, other: Self) -> None:
        """Adds all of another's."""
        for method, step in other._by_method.items():
            self.of(method).add(step)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles what is not zero: a step counts little, and is sent from process to process."""
        return CountersByMethod.from_payload, (self.to_payload(),)

    def to_payload(self) -> list[dict[str, Any]]:
        """Plain values, for sending between processes; empty if nothing was ever asked for."""
        return [step.to_payload() for step in self._by_method.values()]

    def take_payload(self) -> list[dict[str, Any]]:
        """As `to_payload`, and begins anew."""
        payload = self.to_payload()
        self.clear()
        return payload

    def clear(self) -> None:
        """Begins anew."""
        self._by_method = {}

    @classmethod
    def from_payload(cls, payload: list[dict[str, Any]]) -> Self:
        """The inverse of `to_payload`."""
        return cls(StepCounters.from_payload(step) for step in payload)
