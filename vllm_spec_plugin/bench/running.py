"""What benchmarks show of themselves: arms that start, rounds that go by. Imports no vLLM."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vllm_spec_plugin.bench.arms import Arm
from vllm_spec_plugin.bench.quiet import DISTURBING
from vllm_spec_plugin.bench.report import disturbance, disturbance_text


@contextlib.contextmanager
def started_arms(
    arguments: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str], folder: Path, console: Console
) -> Iterator[dict[str, Arm]]:
    """Starts arms one after the other; they end with the context.

    Args:
        arguments: by name, see `arm.py`.
        environment: of each one's process.
        folder: for their files.
        console: where it is told which one starts.

    Raises:
        ArmError: one did not start.
    """
    with contextlib.ExitStack() as stack:
        arms = {}
        for number, (name, values) in enumerate(arguments.items(), 1):
            with console.status(f"starting arm {number}/{len(arguments)}: {escape(name)} (about a minute)"):
                arms[name] = stack.enter_context(Arm(name, values, environment, folder / f"arm{number}"))
        yield arms


@contextlib.contextmanager
def shown_progress(total: int, console: Console) -> Iterator[Callable[[int, str], None]]:
    """A bar, moved by what it yields: how many runs are done, and what the next one is.

    Where there is no terminal (a log, a pipe) it is a line per run instead.
    """
    if not console.is_terminal:
        start = time.monotonic()

        def say(num_done: int, what: str) -> None:
            minutes, seconds = divmod(round(time.monotonic() - start), 60)
            console.print(
                f"{num_done}/{total}, {minutes}:{seconds:02}: {escape(what)}", soft_wrap=True, highlight=False
            )

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Seldom drawn: the engines need all cores.
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, refresh_per_second=1) as bar:
        task = bar.add_task("", total=total)
        yield lambda num_done, what: bar.update(task, description=escape(what), completed=num_done)


def show_disturbance(others: Sequence[float], console: Console) -> None:
    """Says how much others worked meanwhile, if that is known.

    Args:
        others: cores that other processes used, per run.
        console: where.
    """
    found, text = disturbance(others), disturbance_text(others)
    if found is None or text is None:
        return
    console.print()
    console.print(text, style="yellow" if found[0] > DISTURBING else "default")
