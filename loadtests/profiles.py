"""Load profiles: the number of users over the time of a load test (`--load-profile`). Pure."""

import math
from collections.abc import Callable, Mapping

_SPIKE_SHARE = 1 / 16

# Number of users by the most users and the elapsed share of the time, from 0 to below 1.
LoadProfile = Callable[[int, float], int]


def ramp(most: int, elapsed: float) -> int:
    """Rises evenly from one user to the most within the first half, then stays."""
    return min(1 + math.floor(most * elapsed * 2), most)


def steps(most: int, elapsed: float) -> int:
    """Doubles from one user to the most, in steps of equal time."""
    levels = tuple(dict.fromkeys((*(1 << power for power in range(most.bit_length())), most)))
    return levels[math.floor(elapsed * len(levels))]


def spike(most: int, elapsed: float) -> int:
    """Holds a sixteenth of the users; the third quarter of the time has the most."""
    return most if 0.5 <= elapsed < 0.75 else max(round(most * _SPIKE_SHARE), 1)


PROFILES: Mapping[str, LoadProfile] = {"ramp": ramp, "steps": steps, "spike": spike}
