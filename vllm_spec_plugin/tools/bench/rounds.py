"""The order in which arms take turns. Pure."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_Cell = TypeVar("_Cell")


def in_turn(arms: Sequence[str], cells: Sequence[_Cell], rounds: int) -> Iterator[tuple[int, _Cell, str]]:
    """Who runs what, in order: round, cell, arm.

    What changes slowly on the machine meets all arms alike: they take turns, and none is always first.
    """
    for number in range(rounds):
        shift = number % len(arms)
        for cell in cells:
            for arm in (*arms[shift:], *arms[:shift]):
                yield number, cell, arm
