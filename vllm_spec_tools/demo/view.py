"""Shows the two answers of a pair side by side, each written at the pace that was measured."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vllm_spec_tools.demo.answers import Answer
from vllm_spec_tools.demo.pairs import Pair
from vllm_spec_tools.report import Spread

_LINES, _FRAMES_PER_SECOND = 16, 5
_PLAIN, _DRAFTED = "without speculation", "with speculation"


class View:
    """A live view in a terminal, else a line per pair, as a context manager.

    A pair is shown while the next one is measured: side by side, though the servers answered one after the other.
    """

    def __init__(
        self, console: Console, prompts: Sequence[str], total: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Takes where to draw."""
        self._console, self._prompts, self._total, self._clock = console, prompts, total, clock
        self._pairs: list[Pair] = []
        self._start = 0.0
        self._live = Live(
            console=console,
            get_renderable=self._frame,
            refresh_per_second=_FRAMES_PER_SECOND,
            auto_refresh=console.is_terminal,
            transient=True,
        )

    def show(self, pair: Pair) -> None:
        """Begins to show a pair."""
        self._pairs.append(pair)
        self._start = self._clock()
        if not self._console.is_terminal:
            told = line(len(self._pairs), self._total, self._prompts[pair.prompt], pair)
            self._console.print(Text(told), soft_wrap=True)

    def __enter__(self) -> "View":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            if kind is None and self._pairs:
                # The last pair is written to its end.
                slowest = max(self._pairs[-1].plain.seconds, self._pairs[-1].drafted.seconds)
                time.sleep(max(0.0, self._start + slowest - self._clock()))
            self._live.stop()

    def _frame(self) -> RenderableType:
        return frame(self._pairs, self._prompts, self._total, self._clock() - self._start)


def frame(pairs: Sequence[Pair], prompts: Sequence[str], total: int, elapsed: float) -> RenderableType:
    """Draws the last pair as it was `elapsed` seconds after its requests were sent."""
    if not pairs:
        return Text(f"pair 1 of {total}: being measured")
    pair = pairs[-1]
    both = Table.grid(expand=True, padding=(0, 1, 0, 0))
    both.add_column(ratio=1)
    both.add_column(ratio=1)
    both.add_row(
        _panel(_PLAIN, prompts[pair.prompt], pair.plain, elapsed),
        _panel(_DRAFTED, prompts[pair.prompt], pair.drafted, elapsed),
    )
    speedup = Spread.of(each.speedup for each in pairs)
    assert speedup is not None
    status = Text.assemble(
        f"pair {len(pairs)} of {total}; so far ",
        (f"{speedup.median:.2f} times as fast", "bold"),
        f" ({speedup.low:.2f} to {speedup.high:.2f}). Asked one after the other, shown at the measured pace.",
    )
    return Group(both, status)


def line(number: int, total: int, prompt: str, pair: Pair) -> str:
    """Describes a pair in one line."""
    told = "identical" if pair.is_identical else "DIFFERENT"
    disturbed = f", other processes used {pair.others:.1f} cores" if pair.is_disturbed else ""
    return (
        f"pair {number} of {total}: {pair.plain.rate:.0f} -> {pair.drafted.rate:.0f} tokens/s, "
        f"{pair.speedup:.2f} times, {told}{disturbed}: {prompt.strip().splitlines()[0]}"
    )


def _panel(title: str, prompt: str, answer: Answer, elapsed: float) -> Panel:
    now = answer.until(elapsed)
    is_done = elapsed >= answer.seconds
    # Drawn many times while the next pair is measured: highlighting would cost a tenth of a core.
    text = Text.assemble((prompt, "dim"), now.text).split("\n", allow_blank=True)[-_LINES:]
    told = f"{now.tokens} tokens, {now.seconds:.1f} s, {now.rate:.0f} tokens/s"
    style = "green" if is_done else "dim"
    return Panel(
        Text("\n", no_wrap=True, overflow="ellipsis").join(text),
        title=title,
        subtitle=f"done: {told}" if is_done else told,
        border_style=style,
        height=_LINES + 2,
    )
