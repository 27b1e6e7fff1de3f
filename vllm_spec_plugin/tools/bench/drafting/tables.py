"""What drafting costs, the limit of the speedup, where the time goes: as tables."""

from collections.abc import Iterable, Iterator

from rich.markup import escape
from rich.table import Table

from vllm_spec_plugin.tools.bench.drafting.comparison import Results, limits
from vllm_spec_plugin.tools.bench.drafting.parts import PARTS
from vllm_spec_plugin.tools.bench.drafting.summary import ArmSummary, median
from vllm_spec_plugin.tools.bench.spread import Spread, ratio, show_spread
from vllm_spec_plugin.tools.bench.tables import new_table

# A line of a table: whose, and its cells.
Row = tuple[ArmSummary, tuple[str, ...]]


def tables(results: Results) -> Iterator[Table]:
    """All tables that have a row."""
    costs = ("drafter / K", "/ stock", "prepared", "/ stock")
    yield _table("Draft step, ms", costs, _draft_rows(results))
    bounds = ("T(1)", "T(K+1)", "K d", "free", "verify", "draft", "is", "rest")
    yield _table("Limit of the speedup over none; T and d in ms", bounds, _limit_rows(results))
    if rows := list(_tree_rows(results)):
        yield _table("Verifying trees and not chains", ("ms per step", "% of the step"), rows)
    shares = ("drafting", "target", "prompts", "irregular", "between")
    yield _table("Where the time goes, %", shares, _share_rows(results))
    if rows := list(_part_rows(results)):
        yield _table("Where drafting goes, %", (part.replace(" ", "\n") for part in PARTS), rows)


def _table(title: str, headers: Iterable[str], rows: Iterable[Row]) -> Table:
    table = new_table(title, ("batch", "temp", "arm", *headers))
    previous = None
    for summary, values in rows:
        cell = (str(summary.batch), f"{summary.temperature:g}")
        if previous not in (None, cell):
            table.add_section()
        shown = cell if cell != previous else ("", "")
        table.add_row(*shown, escape(summary.arm), *values)
        previous = cell
    return table


def _draft_rows(results: Results) -> Iterator[Row]:
    for summary in results.by_cell():
        if summary.num_draft_tokens:
            step, prepared = Spread.of(summary.draft_step.values()), Spread.of(summary.draft_step_prepared.values())
            over_step, over_prepared = _over_stock(results, summary)
            yield summary, (show_spread(step, 1e3), over_step, show_spread(prepared, 1e3), over_prepared)


def _over_stock(results: Results, summary: ArmSummary) -> tuple[str, str]:
    if results.stock is None or results.stock == summary.arm:
        return "-", "-"
    stock = results.summaries[results.stock, summary.batch, summary.temperature]
    steps = ratio(summary.draft_step, stock.draft_step)
    return show_spread(steps), show_spread(ratio(summary.draft_step_prepared, stock.draft_step_prepared))


def _limit_rows(results: Results) -> Iterator[Row]:
    for summary, found in limits(results):
        drafting = summary.num_draft_tokens * median(summary.draft_step_prepared)
        times = (median(results.none(summary).target_step), median(summary.target_step), drafting)
        gains = (found.free, found.verifying, found.drafting, found.measured)
        cells = (*(f"{1e3 * time:.2f}" for time in times), *(f"{gain:.2f}x" for gain in gains), f"{found.rest:.0%}")
        yield summary, cells


def _tree_rows(results: Results) -> Iterator[Row]:
    for summary in results.by_cell():
        if summary.tree_step:
            seconds, share = Spread.of(summary.tree_step.values()), Spread.of(summary.tree_share.values())
            yield summary, (show_spread(seconds, 1e3), show_spread(share, 100, 1))


def _share_rows(results: Results) -> Iterator[Row]:
    for summary in results.by_cell():
        shares = summary.shares
        parts = (shares.drafting, shares.target, shares.prompts, shares.irregular, shares.between)
        yield summary, tuple(f"{100 * part / shares.total:.1f}" for part in parts)


def _part_rows(results: Results) -> Iterator[Row]:
    for summary in results.by_cell():
        if total := sum(summary.parts.values()):
            yield summary, tuple(f"{100 * summary.parts.get(part, 0.0) / total:.1f}" for part in PARTS)
