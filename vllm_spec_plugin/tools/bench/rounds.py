"""Interleaved rounds: arms take turns, each run behind the noise gate."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate, Timed

_Cell = TypeVar("_Cell")
_Answer = TypeVar("_Answer", bound=Timed)


@dataclass(frozen=True)
class Run(Generic[_Cell, _Answer]):
    """One arm's answer in one round.

    Attributes:
        arm: name of the arm.
        cell: workload and level of the job.
        round: counted from 0; all arms do the same job in it.
        answer: result of the job.
        others: mean cores that other processes used meanwhile; None is not known.
    """

    arm: str
    cell: _Cell
    round: int
    answer: _Answer
    others: float | None = None


def in_turn(arms: Sequence[str], cells: Sequence[_Cell], rounds: int) -> Iterator[tuple[int, _Cell, str]]:
    """Yields round, cell and arm in the order in which they run.

    Slow changes of the machine meet all arms alike: they take turns, and none is always first.
    """
    for number in range(rounds):
        shift = number % len(arms)
        for cell in cells:
            for arm in (*arms[shift:], *arms[:shift]):
                yield number, cell, arm


def num_runs(num_arms: int, num_cells: int, rounds: int) -> int:
    """Returns the number of jobs that `run_rounds` runs."""
    return num_arms * num_cells * (1 + rounds)


def run_rounds(
    arms: Sequence[str],
    cells: Sequence[_Cell],
    rounds: int,
    do: Callable[[str, _Cell, int, bool], _Answer],
    describe: Callable[[_Cell], str],
    gate: NoiseGate,
    on_run: Callable[[int, str], None],
) -> list[Run[_Cell, _Answer]]:
    """Warms up every arm in every cell, and runs the rounds.

    An interrupt, or a signal to end, ends it with the whole rounds that are done; without any it is raised.

    Args:
        arms: names in order.
        cells: workloads with levels.
        rounds: number of rounds, without the warm-up.
        do: runs the job of an arm, cell and round; its last argument is whether it is the warm-up.
        describe: names a cell.
        gate: chooses the moments.
        on_run: called before each run with the number of runs done and a description of the run.

    Raises:
        UserError: an arm ended.
    """
    num_done = itertools.count()

    def run(title: str, number: int, cell: _Cell, arm: str, is_warm_up: bool) -> Run[_Cell, _Answer]:
        on_run(next(num_done), f"{title}: {arm}, {describe(cell)}")
        answer, others = gate.run(lambda: do(arm, cell, number, is_warm_up))
        return Run(arm, cell, number, answer, others)

    for number, cell, arm in in_turn(arms, cells, 1):
        run("warming up", number, cell, arm, True)
    runs: list[Run[_Cell, _Answer]] = []
    try:
        for number, cell, arm in in_turn(arms, cells, rounds):
            runs.append(run(f"round {number + 1}/{rounds}", number, cell, arm, False))
    except (KeyboardInterrupt, SystemExit):
        whole = len(runs) // (len(arms) * len(cells))
        if not whole:
            raise
        return [run for run in runs if run.round < whole]
    return runs


def others_of(runs: Sequence[Run[_Cell, _Answer]]) -> list[float]:
    """Returns the cores that other processes used, per run; empty where that is unknown."""
    return [run.others for run in runs if run.others is not None]


def interruption(num_done: int, num_rounds: int) -> list[str]:
    """Returns the problem of a report on fewer rounds than requested; empty without."""
    return [f"interrupted: these are the first {num_done} of {num_rounds} rounds"] if num_done < num_rounds else []
