"""A figure as a cell of a table, in the terminal and in Markdown alike. Pure."""

from vllm_spec_plugin.tools.bench.load.summary import Figure, LoadSummary
from vllm_spec_plugin.tools.bench.load.sweep import Cell, SweepResults
from vllm_spec_plugin.tools.bench.load.switching import SwitchPhase
from vllm_spec_plugin.tools.bench.spread import show_spread


def levels_of(results: SweepResults) -> dict[str, list[int]]:
    """Numbers of streams by workload."""
    levels: dict[str, list[int]] = {}
    for workload, streams in results.cells:
        levels.setdefault(workload, []).append(streams)
    return levels


def speed(summary: LoadSummary) -> str:
    """Tokens per second."""
    return show_spread(summary.spread("tokens_per_second"), digits=_digits(summary.median))


def milliseconds(summary: LoadSummary, figure: Figure) -> str:
    """Of a time; a dash where no round has it."""
    spread = summary.spread(figure)
    return show_spread(spread, 1e3, digits=2 if spread is None or spread.median < 0.01 else 1)


def length(summary: LoadSummary) -> str:
    """Acceptance length."""
    return "-" if summary.acceptance_length is None else f"{summary.acceptance_length:.2f}"


def drafted(summary: LoadSummary) -> str:
    """Draft length."""
    return f"{summary.draft_length:.1f}"


def greedy(results: SweepResults, name: str, cell: Cell) -> str:
    """Whether the arm's greedy outputs are the reference's; a dash where there are none."""
    if name == results.reference:
        return "(these)" if any(key[1:] == cell for key in results.agreements) else "-"
    agreement = results.agreements.get((name, *cell))
    if agreement is None:
        return "-"
    if agreement.wrong:
        return f"{agreement.wrong} WRONG"
    return f"{agreement.rounding} tied" if agreement.rounding else "equal"


def rate(tokens_per_second: float) -> str:
    """Of a window."""
    return f"{tokens_per_second:.{_digits(tokens_per_second)}f}"


def recovery(phase: SwitchPhase, name: str) -> str:
    """Tokens after which the arm is near the best."""
    tokens = phase.recovered[name]
    return "never" if tokens is None else str(tokens)


def windows_of(phase: SwitchPhase) -> int:
    """How many windows all arms have in it."""
    return min(map(len, phase.rates.values()))


def streams_text(number: int) -> str:
    """A number of streams in words."""
    return f"{number} stream" if number == 1 else f"{number} streams"


def _digits(tokens_per_second: float) -> int:
    return 0 if tokens_per_second >= 100 else 1
