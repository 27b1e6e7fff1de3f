"""Progress of long runs: bars in a terminal, lines elsewhere."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

# Between lines of `Runs` and of `Tasks` where there is no terminal.
_SECONDS, _TASK_SECONDS = 15.0, 60.0
_BAR_WIDTH = 16


class Tasks:
    """A bar per task with the time left; without a terminal a line at its beginning, and one a minute."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """Shows nothing yet; `clock` returns seconds."""
        self._console, self._clock = console, clock
        # Count and times are always shown; what there is no room for is cut from the note.
        whole = [Column(no_wrap=True) for _ in range(3)]
        note = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            MofNCompleteColumn(table_column=whole[0]),
            TimeElapsedColumn(table_column=whole[1]),
            TimeRemainingColumn(table_column=whole[2]),
            TextColumn("{task.fields[note]}", markup=False, table_column=note),
        )
        # Seldom drawn: engines need all cores.
        looks: dict[str, Any] = {"expand": True, "transient": True, "refresh_per_second": 1}
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal, **looks)

    def __enter__(self) -> "Tasks":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    @contextlib.contextmanager
    def task(self, name: str, total: int, before: int = 0) -> Iterator[Callable[..., None]]:
        """Shows a bar for the time of the block; yields a function of the number done and, if any, a note.

        Args:
            before: number that an interrupted run has done.
        """
        task = self._progress.add_task(name, total=total, completed=before, note="")
        start = said = self._clock()
        if not self._console.is_terminal:
            _line(self._console, name)

        def advance(done: int, note: str = "") -> None:
            nonlocal said
            self._progress.update(task, completed=done, note=note)
            now = self._clock()
            if not self._console.is_terminal and done > before and now - said >= _TASK_SECONDS:
                said, left = now, (now - start) * (total - done) / (done - before)
                _line(self._console, f"{name}: {done:,}/{total:,}, {_minutes(left)} left{note and f', {note}'}")

        yield advance
        self._progress.update(task, completed=total)


class Runs:
    """Counts runs, and shows the current stage and run: all in a terminal, else stages and a run every 15 seconds."""

    def __init__(
        self, console: Console, total: int, bar: Callable[..., None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins with no run done; in a terminal `bar` takes the number of runs done, and a text."""
        self._console, self._total, self._bar, self._clock = console, total, bar, clock
        self._stage, self._num_done, self._start, self._said = "", 0, clock(), -math.inf

    def begin(self, stage: str) -> None:
        """Begins a stage, in which engines may have to start first."""
        self._stage, self._said = f"{stage}: ", -math.inf
        self._show(stage)

    def on_run(self, what: str) -> None:
        """Begins a run."""
        self._show(f"{self._stage}{what}")
        self._num_done += 1

    def _show(self, text: str) -> None:
        now = self._clock()
        if self._console.is_terminal:
            self._bar(self._num_done, text)
        elif now - self._said >= _SECONDS:
            self._said = now
            _line(self._console, f"{self._num_done}/{self._total}, {_minutes(now - self._start)}: {text}")


@contextlib.contextmanager
def shown_runs(total: int, console: Console) -> Iterator[Runs]:
    """Yields what runs are told to, for a bar in a terminal, or lines elsewhere."""
    if not console.is_terminal:
        yield Runs(console, total, lambda done, text: None)
        return
    with Tasks(console) as tasks, tasks.task("", total) as advance:
        yield Runs(console, total, advance)


@contextlib.contextmanager
def shown_engines(console: Console) -> Iterator[Callable[[str], None]]:
    """Yields a function of "ENGINE: work": one live line, or lines without a terminal."""
    start, first = time.monotonic(), "starting engines"
    with console.status(first) if console.is_terminal else contextlib.nullcontext() as status:

        def say(what: str) -> None:
            text = f"{_minutes(time.monotonic() - start)} {what}"
            status.update(escape(text)) if status else _line(console, text)

        say(first)
        yield say


def _minutes(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"


def _line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
