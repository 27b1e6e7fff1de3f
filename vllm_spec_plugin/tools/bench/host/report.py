"""The report: the same tables for the terminal and for Markdown, and JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vllm_spec_plugin.tools.bench.host.comparison import HostResults, cell_text, target_text
from vllm_spec_plugin.tools.bench.host.parts import PARTS
from vllm_spec_plugin.tools.bench.provenance import page_head
from vllm_spec_plugin.tools.bench.quiet import disturbance_text
from vllm_spec_plugin.tools.bench.spread import Spread, show_spread
from vllm_spec_plugin.tools.bench.tables import markdown_table

_SCHEMA = 1
_MS = 1e3
NOTE = (
    "Medians of steady decoding steps, then of the rounds, ± half the distance of their quartiles. CPU: time of the "
    "engine's thread. Host: a step's CPU time without the passes of the target (forward) and of the draft model. A "
    "part excludes those inside it. Schedule and bookkeeping: the scheduler's and the runner's; draft lengths: "
    "choosing them; messages: between scheduler and worker, with the executor; inputs: the batch's, with attention "
    "metadata; views: the proposer's input; frontend: handing outputs out. Part timers add up to 0.1 ms a step; host "
    "times and whole steps are measured without them. The text is scripted, three of four draft tokens are accepted; "
    "it repeats itself in arms that draft by n-gram, and never in others."
)


def tables(results: HostResults) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields titles and rows, of which the first is the head."""
    none = results.arms[0]
    for is_computed in dict.fromkeys(cell[0] for cell in results.cells):
        target, cells = target_text(is_computed), [cell for cell in results.cells if cell[0] == is_computed]
        head = ["arm", *(str(num_requests) for _, num_requests in cells)]
        rows = [[none, *(_ms(results.summaries[none, cell].host) for cell in cells)]]
        for arm in results.arms[1:]:
            rows.append([arm, *(_signed(results.added(arm, cell)) for cell in cells)])
        yield f"Host time per step by requests, ms: of none, and over it; {target}", [head, *rows]
        for clock, name in (("cpu", "CPU time"), ("wall", "wall time")):
            rows = [
                [arm, *(_ms(getattr(results.summaries[arm, cell], clock)) for cell in cells)] for arm in results.arms
            ]
            yield f"Whole step by requests, {name}, ms; {target}", [head, *rows]
        for cell in cells:
            summaries = [results.summaries[arm, cell] for arm in results.arms]
            rows = [[part, *(_ms(summary.cpu_parts[part], spread=False) for summary in summaries)] for part in PARTS]
            rows += [
                ["drafted per request", *(f"{summary.draft_tokens:.1f}" for summary in summaries)],
                ["output per request", *(f"{summary.output_tokens:.1f}" for summary in summaries)],
            ]
            yield f"CPU time per step by part, ms; {cell_text(cell)}", [["part", *results.arms], *rows]


def to_markdown(results: HostResults, provenance: Mapping[str, Any], picture: str | None) -> str:
    """Returns the page: the command, the machine, the picture and the tables.

    Args:
        results: of the benchmark.
        provenance: what `bench.provenance.provenance` gives, and "rounds".
        picture: the PNG's address from the page; None is none.
    """
    parts = ["# Host time of a step", *page_head(provenance, provenance["rounds"])]
    if picture is not None:
        parts.append(f"![CPU time per step by part, arm and number of requests]({picture})")
    for title, rows in tables(results):
        parts += [f"**{title}**", markdown_table(rows)]
    parts.append(NOTE)
    if (text := disturbance_text(results.others)) is not None:
        parts.append(text)
    return "\n\n".join(parts) + "\n"


def to_json(results: HostResults, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Returns everything in plain values, in seconds."""
    cells = []
    for (arm, cell), summary in results.summaries.items():
        added = results.added(arm, cell)
        figures = {"host_over_none": None if added is None else asdict(added), **asdict(summary)}
        cells.append({"arm": arm, "is_computed": cell[0], "num_requests": cell[1], **figures})
    return {"schema": _SCHEMA, "provenance": dict(provenance), "others": results.others, "cells": cells}


def _ms(rounds: Mapping[int, float], *, spread: bool = True) -> str:
    found = Spread.of(rounds.values())
    if found is not None and not spread:
        return f"{_MS * found.median:.2f}"
    return show_spread(found, _MS)


def _signed(spread: Spread | None) -> str:
    """The difference in ms; its spread in ms too, as a share of a difference near zero tells nothing."""
    if spread is None:
        return "-"
    half = (spread.high - spread.low) / 2
    return f"{_MS * spread.median:+.2f}" + (f" ±{_MS * half:.2f}" if half else "")
