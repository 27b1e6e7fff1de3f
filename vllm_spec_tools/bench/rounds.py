"""The order of interleaved rounds: arms take turns."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_Cell = TypeVar("_Cell")


def in_turn(
    arms: Sequence[str], cells: Sequence[_Cell], rounds: int, *, one_at_a_time: bool = False
) -> Iterator[tuple[int, _Cell, str]]:
    """Yields round, cell and arm in the order in which they run.

    Slow changes of the machine meet all arms alike: they take turns, and none is always first. One at a time, an arm
    runs all cells of a round before the next arm; every second round has the arms in reverse.
    """
    for number in range(rounds):
        if one_at_a_time:
            yield from ((number, cell, arm) for arm in arms[:: -1 if number % 2 else 1] for cell in cells)
            continue
        shift = number % len(arms)
        for cell in cells:
            for arm in (*arms[shift:], *arms[:shift]):
                yield number, cell, arm


def with_warm_ups(
    arms: Sequence[str], cells: Sequence[_Cell], rounds: int, *, one_at_a_time: bool
) -> Iterator[tuple[int, _Cell, str, bool]]:
    """Yields what `in_turn` does, and whether it is a warm-up.

    Warm-ups come first; one at a time, each job has one before it, as its engine has just started.
    """
    if not one_at_a_time:
        yield from ((*what, True) for what in in_turn(arms, cells, 1))
    for what in in_turn(arms, cells, rounds, one_at_a_time=one_at_a_time):
        if one_at_a_time:
            yield (*what, True)
        yield (*what, False)


def num_runs(num_arms: int, num_cells: int, rounds: int, *, one_at_a_time: bool = False) -> int:
    """Returns the number of jobs that `with_warm_ups` yields."""
    return num_arms * num_cells * (2 * rounds if one_at_a_time else 1 + rounds)
