"""Bars with the time that is left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Tasks:
    """A bar per task on the console; nothing where nobody would see it move."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Tasks":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    @contextmanager
    def task(self, name: str, total: int) -> Iterator[Callable[..., None]]:
        """A bar for the time of the block; call the result with how much is done and, if any, a note."""
        task = self._progress.add_task(name, total=total, note="")

        def advance(done: int, note: str = "") -> None:
            self._progress.update(task, completed=done, note=note)

        yield advance
        self._progress.update(task, completed=total)
