"""What is shown while engines run."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from vllm_spec_plugin.bench.running import shown_progress


class Stages:
    """Counts runs over all stages, and says which one is on."""

    def __init__(self, say: Callable[[int, str], None], *, is_terminal: bool) -> None:
        """Nothing is done yet.

        Args:
            say: shows how many runs are done, and a text.
            is_terminal: whether every run is shown there; else a line per stage.
        """
        self._say, self._is_terminal = say, is_terminal
        self._stage, self._num_done = "", 0

    def begin(self, stage: str) -> None:
        """A stage begins, in which engines may have to start first."""
        self._stage = stage
        self._say(self._num_done, stage)

    def on_run(self, what: str) -> None:
        """A run begins."""
        if self._is_terminal:
            self._say(self._num_done, f"{self._stage}: {what}")
        self._num_done += 1


@contextlib.contextmanager
def shown_stages(total: int, console: Console) -> Iterator[Stages]:
    """A bar over all runs, or lines where there is no terminal; gone with the context."""
    with shown_progress(total, console) as say:
        yield Stages(say, is_terminal=console.is_terminal)
