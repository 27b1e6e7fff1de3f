"""The sweep as a page in Markdown. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
from vllm_spec_plugin.tools.bench.load.report.sentences import notes, sentences
from vllm_spec_plugin.tools.bench.load.summary import LoadSummary, best_fixed, over
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.switching import WINDOW
from vllm_spec_plugin.tools.bench.provenance import page_head
from vllm_spec_plugin.tools.bench.quiet import disturbance_text
from vllm_spec_plugin.tools.bench.spread import show_spread
from vllm_spec_plugin.tools.bench.tables import markdown_table


def to_markdown(results: SweepResults, provenance: Mapping[str, Any], on_cpu: bool, picture: str | None) -> str:
    """The command, a table per workload and figure, sentences and notes.

    Args:
        results: of the sweep.
        provenance: what `bench.provenance.provenance` gives.
        on_cpu: whether vLLM is its CPU build.
        picture: the PNG's address from the page; None is none.
    """
    parts = ["# Benchmark", *page_head(provenance, results.rounds)]
    if picture is not None:
        parts.append(f"![Throughput over that without drafts, and time per output token]({picture})")
    for workload, levels in levels_of(results).items():
        parts += [f"## {workload}", *_matrices(results, workload, levels)]
    parts += [*_switching(results), *sentences(results), *notes(results, on_cpu)]
    if (text := disturbance_text(results.others)) is not None:
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def _matrices(results: SweepResults, workload: str, levels: Sequence[int]) -> Iterator[str]:
    """Tables with a row per arm and a column per level, one per figure."""
    summaries, reference = results.summaries, results.reference
    best = {streams: best_fixed(summaries, results.fixed, workload, streams) for streams in levels}

    def matrix(title: str, show: Callable[[str, int], str]) -> str:
        rows = [[name, *(show(name, streams) for streams in levels)] for name in results.arms]
        return markdown_table([[title, *map(streams_text, levels)], *rows])

    def own(show: Callable[[LoadSummary], str]) -> Callable[[str, int], str]:
        return lambda name, streams: show(summaries[name, workload, streams])

    def marked_speed(name: str, streams: int) -> str:
        shown = speed(summaries[name, workload, streams])
        return f"**{shown}**" if name == best[streams] else shown

    yield matrix("tokens/s (best fixed K in bold)" if results.fixed else "tokens/s", marked_speed)
    yield matrix("over none", lambda name, streams: show_spread(over(summaries, name, reference, workload, streams)))
    if results.fixed:
        yield matrix(
            "over the best fixed K",
            lambda name, streams: show_spread(over(summaries, name, best[streams], workload, streams)),
        )
    yield matrix("acceptance length", own(length))
    yield matrix("drafted per request and step", own(drafted))
    yield matrix("TPOT, ms", own(lambda summary: milliseconds(summary, "tpot")))
    yield matrix("TTFT, ms", own(lambda summary: milliseconds(summary, "ttft")))
    if any(key[1] == workload for key in results.agreements):
        yield matrix("greedy outputs", lambda name, streams: greedy(results, name, (workload, streams)))


def _switching(results: SweepResults) -> Iterator[str]:
    for streams, switch in results.switches.items():
        for number, phase in enumerate(switch.phases, 1):
            title = f"Tokens/s from token ... on, {streams_text(streams)}, phase {number} ({phase.kind})"
            count = windows_of(phase)
            header = [title, *(str(window * WINDOW) for window in range(count)), "near best"]
            rows = [[name, *map(rate, phase.rates[name][:count]), recovery(phase, name)] for name in results.arms]
            yield markdown_table([header, *rows])
