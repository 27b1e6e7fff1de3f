"""The sweep as tables in a terminal."""

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from vllm_spec_plugin.tools.bench.load.report.cells import (
    drafted,
    greedy,
    length,
    levels_of,
    milliseconds,
    rate,
    recovery,
    speed,
    streams_text,
    windows_of,
)
from vllm_spec_plugin.tools.bench.load.summary import best_fixed, over
from vllm_spec_plugin.tools.bench.load.sweep import Cell, SweepResults
from vllm_spec_plugin.tools.bench.load.switching import WINDOW
from vllm_spec_plugin.tools.bench.spread import show_spread
from vllm_spec_plugin.tools.bench.tables import new_table

_THROUGHPUT, _BEST, _REST = ("tokens/s", "/ none"), ("/ best K",), ("length", "drafted")
_LATENCY = ("TPOT, ms", "/ none", "TTFT, ms", "greedy")


def tables(results: SweepResults) -> Iterator[Table]:
    """Per workload what every arm did at every level, and how the switches went."""
    for workload, levels in levels_of(results).items():
        best_of = _BEST if results.fixed else ()
        throughput = new_table(f"Throughput: {workload}", ("streams", "arm", *_THROUGHPUT, *best_of, *_REST))
        latency = new_table(f"Latency: {workload}", ("streams", "arm", *_LATENCY))
        for streams in levels:
            cell = (workload, streams)
            best = best_fixed(results.summaries, results.fixed, *cell)
            throughput.add_section()
            latency.add_section()
            for name in results.arms:
                first = str(streams) if name == results.reference else ""
                mark = " *" if name == best else ""
                throughput.add_row(first, escape(name) + mark, *_throughput(results, name, best, cell))
                latency.add_row(first, escape(name), *_latency(results, name, cell))
        yield throughput
        yield latency
    yield from _switching(results)


def _throughput(results: SweepResults, name: str, best: str | None, cell: Cell) -> Iterator[str]:
    summary = results.summaries[(name, *cell)]
    yield speed(summary)
    yield show_spread(over(results.summaries, name, results.reference, *cell))
    if results.fixed:
        yield show_spread(over(results.summaries, name, best, *cell))
    yield length(summary)
    yield drafted(summary)


def _latency(results: SweepResults, name: str, cell: Cell) -> Iterator[str]:
    summary = results.summaries[(name, *cell)]
    yield milliseconds(summary, "tpot")
    yield show_spread(over(results.summaries, name, results.reference, *cell, "tpot"))
    yield milliseconds(summary, "ttft")
    shown = greedy(results, name, cell)
    yield f"[red]{shown}[/red]" if shown.endswith("WRONG") else shown


def _switching(results: SweepResults) -> Iterator[Table]:
    for streams, switch in results.switches.items():
        for number, phase in enumerate(switch.phases, 1):
            count = windows_of(phase)
            title = f"Switching, {streams_text(streams)}, phase {number} ({phase.kind}): tokens/s from token ... on"
            table = new_table(title, ("arm", *(str(window * WINDOW) for window in range(count)), "near best"))
            for name in results.arms:
                table.add_row(escape(name), *map(rate, phase.rates[name][:count]), recovery(phase, name))
            yield table
