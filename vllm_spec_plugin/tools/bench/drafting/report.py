"""The report of the benchmark of drafting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.tools.bench.arm_spec import NONE, is_stock
from vllm_spec_plugin.tools.bench.drafting.comparison import (
    LIMITS,
    SHARES,
    Cell,
    Results,
    cell_text,
    place_of,
)
from vllm_spec_plugin.tools.bench.drafting.parts import PARTS
from vllm_spec_plugin.tools.bench.noise_gate import disturbance_text
from vllm_spec_plugin.tools.bench.rounds import interruption
from vllm_spec_plugin.tools.report import Report, StackedBars, Table, show_spread

_NOTE = (
    "Medians of the rounds, ± half the distance of the quartiles; ratios are taken round by round. Only regular steps "
    "are timed: all requests are decoding, each with K draft tokens. T(n): a step with n tokens per request, without "
    "drafting. d: a draft step with the preparation of its input. A: acceptance length, 1 + accepted / drafts."
)
GREEDY_NOTE = (
    "vLLM drafts greedily at any temperature; the plugin draws its drafts by default. Drawing takes longer and is "
    "accepted more often."
)
STOCK_NOTE = (
    "On CPU vLLM's own sampler gives wrong outputs with speculation (docs/design/verification.md, \"Why not vLLM's own "
    'sampler"); greedy outputs are right. Above temperature 0 read its draft step, not its acceptance.'
)


def report_of(results: Results, provenance: Mapping[str, Any], rounds: int, on_cpu: bool) -> Report:
    """Makes the report.

    Args:
        results: of the benchmark.
        provenance: what `provenance.provenance` gives, and more.
        rounds: requested number of rounds.
        on_cpu: whether vLLM is its CPU build.
    """
    return Report(
        "bench drafting",
        "Cost of drafting, and the limit of the speedup",
        provenance,
        list(_conclusion(results)),
        [table for table in _tables(results) if table.rows],
        list(_charts(results)),
        [*_notes(results, on_cpu), *filter(None, [disturbance_text(results.others)])],
        interruption(results.rounds, rounds),
        results.measurements,
        {"arms": results.lengths, "others": results.others},
    )


def _conclusion(results: Results) -> Iterator[str]:
    """Yields the measured speedup and its limit, per arm of the plugin and cell."""
    for cell in results.cells:
        for arm in results.lengths:
            free, verifying, drafting, measured, rest = (results.median(arm, cell, f"limit, {name}") for name in LIMITS)
            if is_stock(arm) or None in (free, verifying, drafting, measured, rest):
                continue
            yield (
                f"{arm}, {cell_text(cell)}: measured {measured:.2f}x; the limit is {drafting:.2f}x, of which the "
                f"rest loses {rest:.0%}. With free drafting it would be {verifying:.2f}x, with free verifying too "
                f"{free:.2f}x."
            )


def _tables(results: Results) -> Iterator[Table]:
    drafters = {arm: length for arm, length in results.lengths.items() if length}
    stock = results.stock
    rows = []
    for cell, arm in _pairs(results, drafters):
        row = _cells(cell, arm)
        for metric in ("draft_step", "draft_step_prepared"):
            row.append(show_spread(results.measurements.spread(arm, *place_of(cell), metric), 1e3))
            if stock is not None:
                over = None if arm == stock else results.measurements.ratio(arm, stock, *place_of(cell), metric)
                row.append(show_spread(over))
        rows.append(row)
    over_stock = [] if stock is None else ["over vLLM's"]
    yield _table("Draft step, ms per draft token", ["in drafter", *over_stock, "prepared, d", *over_stock], rows)
    rows = []
    for cell, arm in _pairs(results, drafters):
        gains = [results.median(arm, cell, f"limit, {name}") for name in LIMITS]
        if None not in gains:
            times = (
                results.median(NONE, cell, "target_step") or 0.0,
                results.median(arm, cell, "target_step") or 0.0,
                drafters[arm] * (results.median(arm, cell, "draft_step_prepared") or 0.0),
            )
            shown = (f"{gain or 0.0:.2f}x" for gain in gains[:-1])
            rows.append([*_cells(cell, arm), *(f"{1e3 * time:.2f}" for time in times), *shown, f"{gains[-1]:.0%}"])
    header = ["T(1)", "T(K+1)", "K d", "free", "verify", "draft", "is", "rest"]
    note = (
        "free: A, as if drafting and verifying took no time. verify: A T(1) / T(K+1), with the time of K + 1 tokens. "
        "draft: A T(1) / (T(K+1) + K d), with the time of drafting too. is: as measured. rest: lost besides."
    )
    yield _table(f"Limit of the speedup over {NONE}; T and d in ms", header, rows, note)
    rows = []
    for cell, arm in _pairs(results, drafters):
        step = results.measurements.spread(arm, *place_of(cell), "tree_step")
        if step is not None:
            share = results.measurements.spread(arm, *place_of(cell), "tree_share")
            rows.append([*_cells(cell, arm), show_spread(step, 1e3), show_spread(share, 100, 1)])
    yield _table("Verifying trees instead of chains", ["ms per step", "% of the step"], rows)
    rows = [_shares(results, cell, arm, "share", SHARES) for cell, arm in _pairs(results, results.lengths)]
    irregular = "Irregular: steps after a request has ended, or with fewer than K drafts. Between: outside of any step."
    yield _table("Where the time goes, %", SHARES, rows, irregular)
    rows = [
        _shares(results, cell, arm, "part", PARTS)
        for cell, arm in _pairs(results, drafters)
        if results.median(arm, cell, f"part, {PARTS[0]}") is not None
    ]
    yield _table("Where drafting goes, %", PARTS, rows)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Table:
    return Table(title, ["batch", "temp", "arm", *header], rows, note, text_columns=3)


def _pairs(results: Results, arms: Mapping[str, int]) -> Iterator[tuple[Cell, str]]:
    return ((cell, arm) for cell in results.cells for arm in arms)


def _cells(cell: Cell, arm: str) -> list[str]:
    return [str(cell[0]), f"{cell[1]:g}", arm]


def _shares(results: Results, cell: Cell, arm: str, kind: str, names: Sequence[str]) -> list[str]:
    shares = (results.median(arm, cell, f"{kind}, {name}") or 0.0 for name in names)
    return [*_cells(cell, arm), *(f"{100 * share:.1f}" for share in shares)]


def _charts(results: Results) -> Iterator[StackedBars]:
    """Yields the time per output token by what it is spent on."""
    for cell in results.cells:
        parts: dict[str, dict[str, float]] = {}
        for name in SHARES:
            for arm in results.lengths:
                share = results.median(arm, cell, f"share, {name}") or 0.0
                speed = results.median(arm, cell, "tokens_per_second") or float("inf")
                parts.setdefault(name, {})[arm] = 1e3 * share / speed
        yield StackedBars(cell_text(cell), "time per output token of the batch, ms", parts)


def _notes(results: Results, on_cpu: bool) -> Iterator[str]:
    yield _NOTE
    if results.stock is not None and any(temperature > 0 for _, temperature in results.cells):
        yield GREEDY_NOTE
        if on_cpu:
            yield STOCK_NOTE
