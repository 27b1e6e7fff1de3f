"""When clients leave, and when a process stands still. Pure."""

import random
from dataclasses import dataclass

# Share of clients that leave before anything has come.
_EARLY = 0.25
_MEAN_PIECES = 12.0
_FREEZES = 2
_FREEZE_SECONDS = 3.0


@dataclass(frozen=True)
class Leaving:
    """When a client leaves.

    Attributes:
        pieces: after so many pieces of its stream; None if it does not wait for one.
        patience: seconds that it waits for a piece.
    """

    pieces: int | None
    patience: float


def drawn_leaving(rng: random.Random) -> Leaving:
    """At a random moment: within the prompt or the queue, or anywhere in the output."""
    if rng.random() < _EARLY:
        return Leaving(None, rng.uniform(0.005, 0.2))
    return Leaving(1 + int(rng.expovariate(1 / _MEAN_PIECES)), 120.0)


def freezes(seconds: float) -> tuple[tuple[float, float], ...]:
    """When a process is stopped and goes on, in seconds, over so many seconds: some times, evenly spread.

    There is as much time before, between and after them.
    """
    length = min(_FREEZE_SECONDS, seconds / (2 * _FREEZES + 1))
    free = (seconds - _FREEZES * length) / (_FREEZES + 1)
    starts = [free + number * (free + length) for number in range(_FREEZES)]
    return tuple((start, start + length) for start in starts)
