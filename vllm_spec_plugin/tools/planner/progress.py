"""What is shown while engines run."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from vllm_spec_plugin.tools.bench.running import shown_progress

# Between lines where there is no terminal.
_SECONDS = 15.0


class Stages:
    """Counts runs over all stages, and says which one is on."""

    def __init__(
        self, say: Callable[[int, str], None], *, is_terminal: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is done yet.

        Args:
            say: shows how many runs are done, and a text.
            is_terminal: whether every run is shown there; else stages, and a run every 15 seconds.
            clock: seconds.
        """
        self._show, self._is_terminal, self._clock = say, is_terminal, clock
        self._stage, self._num_done, self._said = "", 0, clock()

    def begin(self, stage: str) -> None:
        """A stage begins, in which engines may have to start first."""
        self._stage = stage
        self._say(stage)

    def on_run(self, what: str) -> None:
        """A run begins."""
        if self._is_terminal or self._clock() - self._said >= _SECONDS:
            self._say(f"{self._stage}: {what}")
        self._num_done += 1

    def _say(self, text: str) -> None:
        self._said = self._clock()
        self._show(self._num_done, text)


@contextlib.contextmanager
def shown_stages(total: int, console: Console) -> Iterator[Stages]:
    """A bar over all runs, or lines where there is no terminal; gone with the context."""
    with shown_progress(total, console) as say:
        yield Stages(say, is_terminal=console.is_terminal)
