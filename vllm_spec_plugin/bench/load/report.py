"""The sweep's report: tables, sentences, JSON. Pure, but for rich's tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from vllm_spec_plugin.bench.load.arms import OPTIMAL
from vllm_spec_plugin.bench.load.summary import LoadSummary, best_fixed, over
from vllm_spec_plugin.bench.load.sweep import Cell, SweepResults
from vllm_spec_plugin.bench.load.switching import RECOVERED, WINDOW, SwitchPhase
from vllm_spec_plugin.bench.load.workloads import EASY, MIXED, SWITCHING
from vllm_spec_plugin.bench.report import disturbance_text, show_spread
from vllm_spec_plugin.bench.summary import Spread

_SCHEMA = 1
STOCK_NOTE = (
    "On CPU stock vLLM's sampled outputs are wrong with speculation (docs/architecture.md, \"Why not vLLM's own "
    'sampler"), its greedy ones are right: its figures tell something of the workload easy only.'
)


def tables(results: SweepResults) -> Iterator[Table]:
    """Per workload what every arm did at every level, and how the switches went."""
    for workload, levels in _levels(results).items():
        table = _table(f"Load: {workload}", ("tokens/s", "/ none", "/ best K", "length", "drafted"))
        for streams in levels:
            table.add_section()
            best = best_fixed(results.summaries, results.fixed, workload, streams)
            for name in results.arms:
                mark = " *" if name == best else ""
                first = str(streams) if name == results.reference else ""
                table.add_row(first, escape(name) + mark, *_cells(results, name, best, (workload, streams)))
        yield table
    for streams, switch in results.switches.items():
        for number, phase in enumerate(switch.phases, 1):
            count = min(map(len, phase.rates.values()))
            title = f"Switching, {_streams(streams)}, phase {number} ({phase.kind}): tokens/s from token ... on"
            table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
            table.add_column("arm")
            for window in range(count):
                table.add_column(str(window * WINDOW), justify="right")
            table.add_column("near best", justify="right")
            for name in results.arms:
                rates = (_rate(rate) for rate in phase.rates[name][:count])
                table.add_row(escape(name), *rates, _recovery(phase, name))
            yield table


def sentences(results: SweepResults) -> Iterator[str]:
    """How even mixtures were, where `optimal` does worst and best, and how soon it recovers."""
    yield from _mixture(results)
    if OPTIMAL not in results.arms:
        return
    for workload, levels in _levels(results).items():
        if workload != SWITCHING:
            yield _range_of_optimal(results, workload, levels)
    for streams, switch in results.switches.items():
        phases = (
            f"phase {number} ({phase.kind}) {_recovery(phase, OPTIMAL)} (best: {phase.best})"
            for number, phase in enumerate(switch.phases, 1)
        )
        yield f"switching, {_streams(streams)}: {OPTIMAL} is near the best after so many tokens: {', '.join(phases)}."


def notes(results: SweepResults, on_cpu: bool) -> Iterator[str]:
    """What the tables are to be read with."""
    yield (
        "So many requests are in flight all the time. Tokens and time count from when each stream has its first token; "
        "later prompts are in the time. Each arm did each level once in short before, which is not counted, and from "
        "which the policy learns. Medians of the "
        "rounds, ± half the distance of their quartiles; ratios are taken round by round. best K (*): the arm of fixed "
        "draft length with the highest median at this level; length: 1 + accepted / drafts; drafted: tokens per "
        "request and step that brought it something."
    )
    if results.switches:
        yield (
            f"switching: all streams turn at once, with a new request each. Windows of {WINDOW} output tokens per "
            "stream, the first one of a phase with its prompts; near best: tokens per stream before the first two "
            f"windows in a row with at least {RECOVERED:.0%} of what the arm that is fastest over the whole phase does "
            "in the same windows."
        )
    has_stock = any(name.startswith("stock ") for name in results.arms)
    if on_cpu and has_stock and any(workload != EASY for workload, _ in results.cells):
        yield STOCK_NOTE


def to_markdown(results: SweepResults, provenance: Mapping[str, Any], on_cpu: bool, picture: str | None) -> str:
    """The report as a page: the command, a table per workload and figure, sentences and notes.

    Args:
        results: of the sweep.
        provenance: what `bench.provenance.provenance` gives.
        on_cpu: whether vLLM is its CPU build.
        picture: the PNG's address from the page; None is none.
    """
    machine = provenance["machine"]
    parts = [
        "# Load sweep",
        f"```\nvllm-spec {' '.join(provenance['arguments'])}\n```",
        f"{machine['cores']} cores of {machine['cpu']}, vLLM {provenance['versions']['vllm']}, "
        f"{provenance['date'][:10]}.",
    ]
    if picture is not None:
        parts.append(f"![Throughput over that without drafts]({picture})")
    for workload, levels in _levels(results).items():
        parts += [f"## {workload}", *_matrices(results, workload, levels)]
    for streams, switch in results.switches.items():
        for number, phase in enumerate(switch.phases, 1):
            title = f"Tokens/s from token ... on, {_streams(streams)}, phase {number} ({phase.kind})"
            count = min(map(len, phase.rates.values()))
            header = [title, *(str(window * WINDOW) for window in range(count)), "near best"]
            rows = [[name, *map(_rate, phase.rates[name][:count]), _recovery(phase, name)] for name in results.arms]
            parts.append(_markdown([header, *rows]))
    parts += [*sentences(results), *notes(results, on_cpu)]
    if (text := disturbance_text(results.others)) is not None:
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def to_json(results: SweepResults, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, in plain values."""
    cells = []
    for workload, streams in results.cells:
        best = best_fixed(results.summaries, results.fixed, workload, streams)
        for name in results.arms:
            summary = results.summaries[name, workload, streams]
            ratios = {
                "none": over(results.summaries, name, results.reference, workload, streams),
                "best_fixed": over(results.summaries, name, best, workload, streams),
            }
            cells.append(
                {"workload": workload, "streams": streams, "arm": name, "best_fixed": best}
                | asdict(summary)
                | {"median": asdict(_spread_of(summary))}
                | {"ratios": {other: found and asdict(found) for other, found in ratios.items()}}
            )
    switches = [{"streams": streams} | asdict(switch) for streams, switch in results.switches.items()]
    return {
        "schema": _SCHEMA,
        "provenance": dict(provenance),
        "arms": list(results.arms),
        "others": results.others,
        "cells": cells,
        "switching": {"window": WINDOW, "recovered": RECOVERED, "levels": switches},
    }


def _levels(results: SweepResults) -> dict[str, list[int]]:
    levels: dict[str, list[int]] = {}
    for workload, streams in results.cells:
        levels.setdefault(workload, []).append(streams)
    return levels


def _mixture(results: SweepResults) -> Iterator[str]:
    """When a run ends, fast arms are further with the predictable texts that are in flight."""
    shares = [
        (summary.tokens_by_kind.get(EASY, 0) / sum(summary.tokens_by_kind.values()), f"{name}, {_streams(streams)}")
        for (name, workload, streams), summary in results.summaries.items()
        if workload == MIXED
    ]
    if shares:
        low, high = (f"{share:.0%} ({where})" for share, where in (min(shares), max(shares)))
        yield f"mixed: of the output tokens, {low} to {high} are predictable text's."


def _range_of_optimal(results: SweepResults, workload: str, levels: Sequence[int]) -> str:
    """Lowest and highest ratio over the levels, to no drafts and to the best fixed draft length."""
    best = {streams: best_fixed(results.summaries, results.fixed, workload, streams) for streams in levels}
    parts = []
    for title, others in ((results.reference, dict.fromkeys(levels, results.reference)), ("the best fixed K", best)):
        spreads = {s: over(results.summaries, OPTIMAL, others[s], workload, s) for s in levels}
        found = [(spread.median, streams) for streams, spread in spreads.items() if spread is not None]
        if found:
            low, high = (f"{ratio:.2f} ({_streams(streams)})" for ratio, streams in (min(found), max(found)))
            parts.append(f"{low} to {high} times {title}")
    return f"{workload}: {OPTIMAL} is at {' and '.join(parts)}."


def _table(title: str, headers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("streams", justify="right")
    table.add_column("arm")
    for header in headers:
        table.add_column(header, justify="right")
    return table


def _cells(results: SweepResults, name: str, best: str | None, cell: Cell) -> Iterator[str]:
    summary = results.summaries[(name, *cell)]
    yield _speed(summary)
    yield show_spread(over(results.summaries, name, results.reference, *cell))
    yield show_spread(over(results.summaries, name, best, *cell))
    yield _length(summary)
    yield _drafted(results, name, *cell)


def _matrices(results: SweepResults, workload: str, levels: Sequence[int]) -> Iterator[str]:
    """Markdown tables with a row per arm and a column per level, one per figure."""
    best = {streams: best_fixed(results.summaries, results.fixed, workload, streams) for streams in levels}

    def matrix(title: str, show: Callable[[str, int], str]) -> str:
        rows = [[name, *(show(name, streams) for streams in levels)] for name in results.arms]
        return _markdown([[title, *map(_streams, levels)], *rows])

    def speed(name: str, streams: int) -> str:
        shown = _speed(results.summaries[name, workload, streams])
        return f"**{shown}**" if name == best[streams] else shown

    def over_none(name: str, streams: int) -> str:
        return show_spread(over(results.summaries, name, results.reference, workload, streams))

    def over_best(name: str, streams: int) -> str:
        return show_spread(over(results.summaries, name, best[streams], workload, streams))

    yield matrix("tokens/s (best fixed K in bold)", speed)
    yield matrix("over none", over_none)
    if results.fixed:
        yield matrix("over the best fixed K", over_best)
    yield matrix("acceptance length", lambda name, streams: _length(results.summaries[name, workload, streams]))
    yield matrix("drafted per request and step", lambda name, streams: _drafted(results, name, workload, streams))


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _spread_of(summary: LoadSummary) -> Spread:
    spread = Spread.of(summary.tokens_per_second.values())
    assert spread is not None, "every arm did every cell"
    return spread


def _speed(summary: LoadSummary) -> str:
    return show_spread(_spread_of(summary), digits=0 if summary.median >= 100 else 1)


def _drafted(results: SweepResults, name: str, workload: str, streams: int) -> str:
    return f"{results.summaries[name, workload, streams].draft_length:.1f}"


def _rate(rate: float) -> str:
    return f"{rate:.{0 if rate >= 100 else 1}f}"


def _length(summary: LoadSummary) -> str:
    return "-" if summary.acceptance_length is None else f"{summary.acceptance_length:.2f}"


def _recovery(phase: SwitchPhase, name: str) -> str:
    tokens = phase.recovered[name]
    return "never" if tokens is None else str(tokens)


def _streams(number: int) -> str:
    return f"{number} stream" if number == 1 else f"{number} streams"
