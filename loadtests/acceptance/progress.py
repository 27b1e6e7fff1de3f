"""What is shown of work that goes on for a known time."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_SECONDS_BETWEEN_LINES = 15.0


@contextlib.contextmanager
def shown_time(what: str, seconds: float, console: Console) -> Iterator[Callable[[str], None]]:
    """A bar that fills in so many seconds; it is moved, and its text set, by what it yields.

    Where there is no terminal (a log, a pipe) it is a line now and then instead.

    Args:
        what: goes on.
        seconds: that it takes; it may take longer.
        console: where.
    """
    start = time.monotonic()
    if not console.is_terminal:
        said = start

        def say(text: str) -> None:
            nonlocal said
            now = time.monotonic()
            if now - said >= _SECONDS_BETWEEN_LINES:
                said = now
                line = f"{what}: {now - start:.0f} of {seconds:.0f} s, {text}"
                console.print(escape(line), soft_wrap=True, highlight=False)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Seldom drawn: the engine needs all cores.
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as bar:
        task = bar.add_task(escape(what), total=seconds)
        yield lambda text: bar.update(
            task, description=escape(f"{what}: {text}"), completed=min(time.monotonic() - start, seconds)
        )
