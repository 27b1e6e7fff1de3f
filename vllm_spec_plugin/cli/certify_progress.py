"""Shows the progress of `vllm-spec certify`."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def shown(console: "Console") -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the next piece of work: in a live line, or without a terminal in a new line."""
    from rich.markup import escape

    start, lock = time.monotonic(), threading.Lock()

    def since() -> str:
        minutes, seconds = divmod(round(time.monotonic() - start), 60)
        return f"{minutes}:{seconds:02}"

    first = "starting engines"
    if not console.is_terminal:

        def say(what: str) -> None:
            with lock:
                console.print(f"{since()} {escape(what)}", soft_wrap=True, highlight=False)

        say(first)
        yield say
        return
    # Engines run side by side, each with a line of its own.
    doing: dict[str, str] = {}
    with console.status(first) as status:

        def update(what: str) -> None:
            with lock:
                engine, _, rest = what.partition(": ")
                doing[engine] = rest
                status.update(f"{since()} " + escape("; ".join(f"{k}: {v}" for k, v in list(doing.items())[-2:])))

        yield update
