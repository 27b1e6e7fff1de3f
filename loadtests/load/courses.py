"""How the number of users goes over the time of a load test. Pure."""

import math
from dataclasses import dataclass
from typing import Protocol


class Course(Protocol):
    """How many users there are to be."""

    def __init__(self, most: int, seconds: float) -> None:
        """At most so many users, for so long."""
        ...

    @property
    def seconds(self) -> float:
        """How long it takes."""
        ...

    def users(self, elapsed: float) -> int:
        """How many there are to be so many seconds after the start, before the end."""
        ...


@dataclass(frozen=True)
class Ramp:
    """From one user to the most, evenly, and then these for as long again.

    Attributes:
        most: users at the end, at least 1.
        seconds: in all.
    """

    most: int
    seconds: float

    def users(self, elapsed: float) -> int:
        """One more after equal times."""
        return min(1 + math.floor(self.most * elapsed / (self.seconds / 2)), self.most)


@dataclass(frozen=True)
class Steps:
    """One, two, four, and so on to the most, each for an equal time: what the machine does at each level.

    Attributes:
        most: users at the end, at least 1.
        seconds: in all.
    """

    most: int
    seconds: float

    @property
    def levels(self) -> tuple[int, ...]:
        """The numbers of users, in order."""
        doubled = (2**power for power in range(self.most.bit_length()))
        return tuple(dict.fromkeys((*doubled, self.most)))

    def users(self, elapsed: float) -> int:
        """The level that it is time for."""
        place = math.floor(elapsed / self.seconds * len(self.levels))
        return self.levels[min(place, len(self.levels) - 1)]


@dataclass(frozen=True)
class Spike:
    """Few users; in the third quarter suddenly the most; then few again: does the server come back?

    Attributes:
        most: users of the spike, at least 1.
        seconds: in all.
        share: of the most, the users outside of it; at least one.
    """

    most: int
    seconds: float
    share: float = 1 / 16

    def users(self, elapsed: float) -> int:
        """Few or the most."""
        return self.most if 0.5 <= elapsed / self.seconds < 0.75 else max(round(self.most * self.share), 1)


@dataclass(frozen=True)
class Soak:
    """The same number of users all the time: what grows, grows until one sees it.

    Attributes:
        most: users, at least 1.
        seconds: in all.
    """

    most: int
    seconds: float

    def users(self, elapsed: float) -> int:
        """All of them."""
        return self.most


COURSES: dict[str, type[Ramp] | type[Steps] | type[Spike] | type[Soak]] = {
    "ramp": Ramp,
    "steps": Steps,
    "spike": Spike,
    "soak": Soak,
}
