"""A number that goes up and down."""

import time
from collections.abc import Callable


class Gauge:
    """Starts at 0, and remembers when it changed.

    Attributes:
        changes: moments in order, seconds of the clock, and the number from then on.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Its clock tells seconds."""
        self.changes: list[tuple[float, int]] = []
        self._clock = clock

    def add(self, change: int) -> None:
        """Goes up, or down by a negative number."""
        self.changes.append((self._clock(), (self.changes[-1][1] if self.changes else 0) + change))
