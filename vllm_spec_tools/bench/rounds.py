"""Interleaved rounds: arms take turns, each run behind the noise gate."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vllm_spec_tools.bench.noise_gate import NoiseGate, Timed, disturbance_text
from vllm_spec_tools.report import Measurements, Report

_Cell = TypeVar("_Cell")
_Answer = TypeVar("_Answer", bound=Timed)


@dataclass(frozen=True)
class Run(Generic[_Cell, _Answer]):
    """One arm's answer in one round.

    Attributes:
        round: counted from 0; all arms do the same job in it.
        others: mean cores that other processes used meanwhile; None is not known.
    """

    arm: str
    cell: _Cell
    round: int
    answer: _Answer
    others: float | None = None


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
    """Returns the number of jobs that `run_rounds` runs."""
    return num_arms * num_cells * (2 * rounds if one_at_a_time else 1 + rounds)


def run_rounds(
    arms: Sequence[str],
    cells: Sequence[_Cell],
    rounds: int,
    do: Callable[[str, _Cell, int, bool], _Answer],
    describe: Callable[[_Cell], str],
    gate: NoiseGate,
    on_run: Callable[[int, str], None],
    *,
    one_at_a_time: bool = False,
) -> list[Run[_Cell, _Answer]]:
    """Warms up every arm in every cell, and runs the rounds.

    An interrupt, or a signal to end, ends it with the whole rounds that are done; without any it is raised.

    Args:
        do: runs the job of an arm, cell and round; its last argument is whether it is the warm-up.
        on_run: called before each run with the number of runs done and a description of the run.
        one_at_a_time: whether an arm runs all its cells of a round before the next arm; its jobs are not repeated.

    Raises:
        UserError: an arm ended.
    """
    num_done = itertools.count()

    def run(number: int, cell: _Cell, arm: str, is_warm_up: bool) -> Run[_Cell, _Answer]:
        title = "warming up" if is_warm_up else f"round {number + 1}/{rounds}"
        on_run(next(num_done), f"{title}: {arm}, {describe(cell)}")
        answer, others = gate.run(lambda: do(arm, cell, number, is_warm_up), repeats=not one_at_a_time)
        return Run(arm, cell, number, answer, others)

    runs: list[Run[_Cell, _Answer]] = []
    try:
        for what in with_warm_ups(arms, cells, rounds, one_at_a_time=one_at_a_time):
            found = run(*what)
            if not what[-1]:
                runs.append(found)
    except (KeyboardInterrupt, SystemExit):
        whole = len(runs) // (len(arms) * len(cells))
        if not whole:
            raise
        return [run for run in runs if run.round < whole]
    return runs


@dataclass(frozen=True)
class Results(Generic[_Cell]):
    """Findings of a comparison.

    Attributes:
        others: cores that other processes used, per run; empty where that is unknown.
    """

    arms: tuple[str, ...]
    cells: tuple[_Cell, ...]
    rounds: int
    measurements: Measurements
    others: list[float]

    @property
    def reference(self) -> str:
        """The arm without speculation."""
        return self.arms[0]

    def report(
        self,
        kind: str,
        title: str,
        origin: Mapping[str, Any],
        rounds: int,
        *,
        notes: Iterable[str],
        problems: Sequence[str] = (),
        data: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Report:
        """Makes a report, with what disturbed the runs and how many of `rounds` are missing."""
        missing = []
        if self.rounds < rounds:
            missing.append(f"interrupted: these are the first {self.rounds} of {rounds} rounds")
        return Report(
            kind,
            title,
            origin,
            notes=[*notes, *filter(None, [disturbance_text(self.others)])],
            problems=[*missing, *problems],
            measurements=self.measurements,
            data={"arms": list(self.arms)} | dict(data or {}) | {"others": self.others},
            **parts,
        )


def results_of(
    runs: Sequence[Run[_Cell, _Answer]],
    arms: Iterable[str],
    cells: Sequence[_Cell],
    place: Callable[[_Cell], tuple[str, float]],
    figures: Callable[[_Answer], Mapping[str, float | None]],
) -> Results[_Cell]:
    """Sums up runs."""
    measurements, names = Measurements(), tuple(arms)
    for run in sorted(runs, key=lambda run: (cells.index(run.cell), names.index(run.arm))):
        measurements.add(run.arm, *place(run.cell), run.round, figures(run.answer))
    others = [run.others for run in runs if run.others is not None]
    return Results(names, tuple(cells), 1 + max(run.round for run in runs), measurements, others)
