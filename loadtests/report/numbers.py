"""Formats numbers for people."""

import math

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


def milliseconds(seconds: float | None) -> str:
    """A time in ms, without its unit."""
    return number(None if seconds is None else seconds * 1000)


def time_text(seconds: float | None) -> str:
    """A time with its unit: milliseconds below 10 s."""
    if seconds is None:
        return UNKNOWN
    return f"{number(seconds)} s" if seconds >= _LONG else f"{milliseconds(seconds)} ms"
