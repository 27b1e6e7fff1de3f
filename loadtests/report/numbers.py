"""Formats numbers for people."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

UNKNOWN = "-"
_DIGITS = 3
# From this time on, in seconds, times are shown in seconds.
_LONG = 10.0


def number(value: float | None) -> str:
    """Three significant digits, and all digits before the point: 0.0123, 1.23, 12.3, 1,234."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    # Rounded first: 9.999 is 10.0.
    power = int(f"{value:.{_DIGITS - 1}e}".partition("e")[2])
    return f"{value:,.{max(_DIGITS - 1 - power, 0) if value else 0}f}"


def count(value: float | None) -> str:
    """A whole number."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share of 1."""
    return UNKNOWN if share is None else f"{share:.1%}"


@dataclass(frozen=True)
class Unit:
    """A unit of time.

    Attributes:
        name: its symbol.
        per_second: number of units in a second.
    """

    name: str
    per_second: float

    def of(self, seconds: float | None) -> str:
        """A time in this unit, without its symbol."""
        return number(None if seconds is None else seconds * self.per_second)


def unit_for(times: Iterable[float | None]) -> Unit:
    """Unit for times, in seconds, that are shown together: milliseconds if all are below 10 s."""
    is_long = max((time for time in times if time is not None), default=0.0) >= _LONG
    return Unit("s", 1.0) if is_long else Unit("ms", 1000.0)


def time_text(seconds: float | None) -> str:
    """A time with its unit."""
    if seconds is None:
        return UNKNOWN
    unit = unit_for([seconds])
    return f"{unit.of(seconds)} {unit.name}"


def duration(seconds: float) -> str:
    """A length of time: 59.7 s, 12 min 5 s, 8 h 0 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{number(seconds)} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
