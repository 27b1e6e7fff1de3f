"""How figures are said. Pure."""

from collections.abc import Mapping


def streams(number: int) -> str:
    """ "1 stream", "8 streams"."""
    return f"{number} stream" if number == 1 else f"{number} streams"


def by_level(values: Mapping[int, float]) -> str:
    """Speedups at each concurrency: "2.10x at 1 stream, 1.20x at 8"."""
    levels = [streams(level) if i == 0 else str(level) for i, level in enumerate(values)]
    return ", ".join(f"{value:.2f}x at {level}" for level, value in zip(levels, values.values(), strict=True))


def times(values: Mapping[int, float]) -> str:
    """The same without saying where."""
    return ", ".join(f"{value:.2f}x" for value in values.values())
