"""The report: tables, sentences and JSON. Pure, but for rich's tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from vllm_spec_plugin.bench.comparison import NONE, STOCK, Results
from vllm_spec_plugin.bench.parts import PARTS
from vllm_spec_plugin.bench.summary import ArmSummary, Limit, Spread, limit, ratio

# A line of a table: whose, and its cells.
Row = tuple[ArmSummary, tuple[str, ...]]

_SCHEMA = 1
_PER_ROUND = ("tokens_per_second", "target_step", "draft_step", "draft_step_prepared", "tree_step", "tree_share")
GREEDY_NOTE = (
    "Stock vLLM drafts greedily at any temperature; the plugin draws its drafts, unless told otherwise, which takes "
    "longer and is accepted more often."
)
STOCK_NOTE = (
    "On CPU stock vLLM's sampled outputs are wrong with speculation (docs/architecture.md, \"Why not vLLM's own "
    'sampler"), its greedy ones are right: above temperature 0 read its draft step, not its tokens and acceptance.'
)


def tables(results: Results) -> Iterator[Table]:
    """What drafting costs, what speculation gains, its limit, where the time goes."""
    costs = ("drafter / K", "/ stock", "prepared", "/ stock")
    yield _table("Draft step, ms", costs, _draft_rows(results))
    gains = ("tokens/s", "/ none", "/ stock", "length", "alpha", "greedy")
    yield _table("End to end", gains, _end_to_end_rows(results))
    if NONE in results.arms:
        limits = ("T(1)", "T(K+1)", "K d", "free", "verify", "draft", "is", "rest")
        yield _table("Limit of the speedup over none; T and d in ms", limits, _limit_rows(results))
    if rows := list(_tree_rows(results)):
        yield _table("Verifying trees and not chains", ("ms per step", "% of the step"), rows)
    shares = ("drafting", "target", "prompts", "irregular", "between")
    yield _table("Where the time goes, %", shares, _share_rows(results))
    if rows := list(_part_rows(results)):
        yield _table("Where drafting goes, %", (part.replace(" ", "\n") for part in PARTS), rows)


def sentences(results: Results) -> Iterator[str]:
    """Per arm of the plugin's, batch size and temperature: what the limit is, and where the rest goes."""
    for summary, found in _limits(results):
        if summary.arm == STOCK:
            continue
        none = results.summaries[NONE, summary.batch, summary.temperature]
        one, several = _median(none.target_step) * 1e3, _median(summary.target_step) * 1e3
        k, drafting = summary.num_draft_tokens, _median(summary.draft_step_prepared) * 1e3
        shares = summary.shares
        yield (
            f"{summary.arm}, batch {summary.batch}, temperature {summary.temperature:g}: "
            f"{found.free:.2f} tokens a step, so {found.free:.2f}x if drafting and verifying were free. "
            f"A step with {k + 1} tokens takes {several:.2f} ms, one with 1 {one:.2f} ms: {found.verifying:.2f}x. "
            f"Drafting takes {k} x {drafting:.2f} ms: {found.drafting:.2f}x. Measured: {found.measured:.2f}x. "
            f"The rest, {found.rest:.0%}: of the whole time prompts take {shares.prompts / shares.total:.0%}, steps in "
            f"which requests have ended or drafts are short {shares.irregular / shares.total:.0%}, and what is between "
            f"steps {shares.between / shares.total:.0%}."
        )


def notes(results: Results, on_cpu: bool) -> Iterator[str]:
    """What the tables are to be read with."""
    yield (
        "Medians of the rounds, ± half the distance of their quartiles; ratios are taken round by round. "
        "drafter / K: time in the drafter per draft token; prepared: with what the runner does to call it; "
        "length: 1 + accepted / drafts; alpha: accepted / drafted; greedy: whether outputs at temperature 0 are arm "
        f"{results.reference}'s, tied where they part at two tokens as likely as each other; "
        "T(n): a step with n tokens per request, without drafting; d: a draft step, prepared; irregular: steps in "
        "which requests have ended or drafts are short."
    )
    if STOCK in results.arms and any(temperature > 0 for _, _, temperature in results.summaries):
        yield GREEDY_NOTE
        if on_cpu:
            yield STOCK_NOTE


def disturbance(others: Sequence[float]) -> tuple[float, float] | None:
    """Of cores that other processes used while the runs that count ran: the median and the most; None is not known."""
    found = Spread.of(others)
    return None if found is None else (found.median, max(others))


def disturbance_text(others: Sequence[float]) -> str | None:
    """That as a sentence."""
    found = disturbance(others)
    if found is None:
        return None
    return f"Other processes used {found[0]:.2f} cores meanwhile (median of the runs; {found[1]:.2f} at most)."


def num_wrong(results: Results) -> int:
    """Greedy outputs that differ from the reference's for another reason than rounding."""
    return sum(agreement.wrong for agreement in results.agreements.values())


def to_json(results: Results, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, in plain values; seconds, not milliseconds."""
    limits = {_key(summary): asdict(found) for summary, found in _limits(results)}
    cells = []
    for key, summary in results.summaries.items():
        others = {other: results.summaries[other, *key[1:]] for other in results.arms if other != summary.arm}
        cells.append(
            asdict(summary)
            | {
                "medians": {name: _as_dict(Spread.of(getattr(summary, name).values())) for name in _PER_ROUND},
                "ratios": {
                    other: {name: _as_dict(ratio(getattr(summary, name), getattr(theirs, name))) for name in _PER_ROUND}
                    for other, theirs in others.items()
                },
                "limit": limits.get(key),
                "agreement": _as_dict(results.agreements.get(key[:2])) if summary.temperature == 0 else None,
            }
        )
    return {
        "schema": _SCHEMA,
        "provenance": dict(provenance),
        "reference": results.reference,
        "others": results.others,
        "cells": cells,
    }


def _table(title: str, headers: Iterable[str], rows: Iterable[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("batch", justify="right")
    table.add_column("temp", justify="right")
    table.add_column("arm")
    for header in headers:
        table.add_column(header, justify="right")
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
    for summary in _by_cell(results):
        if not summary.num_draft_tokens:
            continue
        stock = _other(results, STOCK, summary)
        yield (
            summary,
            (
                show_spread(Spread.of(summary.draft_step.values()), 1e3),
                _over(summary, stock, "draft_step"),
                show_spread(Spread.of(summary.draft_step_prepared.values()), 1e3),
                _over(summary, stock, "draft_step_prepared"),
            ),
        )


def _end_to_end_rows(results: Results) -> Iterator[Row]:
    for summary in _by_cell(results):
        none, stock = _other(results, NONE, summary), _other(results, STOCK, summary)
        rate = Spread.of(summary.tokens_per_second.values())
        yield (
            summary,
            (
                show_spread(rate, digits=0 if rate and rate.median >= 100 else 1),
                _over(summary, none, "tokens_per_second"),
                _over(summary, stock, "tokens_per_second"),
                _number(summary.acceptance_length),
                _number(summary.acceptance_rate, 3),
                _agreement(results, summary),
            ),
        )


def _tree_rows(results: Results) -> Iterator[Row]:
    for summary in _by_cell(results):
        if summary.tree_step:
            seconds, share = Spread.of(summary.tree_step.values()), Spread.of(summary.tree_share.values())
            yield summary, (show_spread(seconds, 1e3), show_spread(share, 100, 1))


def _limit_rows(results: Results) -> Iterator[Row]:
    for summary, found in _limits(results):
        none = results.summaries[NONE, summary.batch, summary.temperature]
        drafting = summary.num_draft_tokens * _median(summary.draft_step_prepared)
        yield (
            summary,
            (
                *(
                    f"{1e3 * value:.2f}"
                    for value in (_median(none.target_step), _median(summary.target_step), drafting)
                ),
                *(f"{value:.2f}x" for value in (found.free, found.verifying, found.drafting, found.measured)),
                f"{found.rest:.0%}",
            ),
        )


def _share_rows(results: Results) -> Iterator[Row]:
    for summary in _by_cell(results):
        shares = summary.shares
        parts = (shares.drafting, shares.target, shares.prompts, shares.irregular, shares.between)
        yield summary, tuple(f"{100 * part / shares.total:.1f}" for part in parts)


def _part_rows(results: Results) -> Iterator[Row]:
    for summary in _by_cell(results):
        if total := sum(summary.parts.values()):
            yield summary, tuple(f"{100 * summary.parts.get(part, 0.0) / total:.1f}" for part in PARTS)


def _by_cell(results: Results) -> Iterator[ArmSummary]:
    cells = dict.fromkeys(key[1:] for key in results.summaries)
    return (results.summaries[arm, *cell] for cell in cells for arm in results.arms)


def _limits(results: Results) -> Iterator[tuple[ArmSummary, Limit]]:
    for summary in _by_cell(results):
        none = _other(results, NONE, summary)
        found = limit(summary, none) if none and summary.num_draft_tokens else None
        if found is not None:
            yield summary, found


def _other(results: Results, arm: str, summary: ArmSummary) -> ArmSummary | None:
    return None if arm == summary.arm else results.summaries.get((arm, summary.batch, summary.temperature))


def _agreement(results: Results, summary: ArmSummary) -> str:
    if summary.temperature:
        return ""
    if summary.arm == results.reference:
        return "(these)"
    agreement = results.agreements.get((summary.arm, summary.batch))
    if agreement is None:
        return "-"
    if agreement.wrong:
        return f"[red]{agreement.wrong} WRONG[/red]"
    return f"{agreement.rounding} tied" if agreement.rounding else "equal"


def _key(summary: ArmSummary) -> tuple[str, int, float]:
    return summary.arm, summary.batch, summary.temperature


def _median(values: Mapping[int, float]) -> float:
    spread = Spread.of(values.values())
    assert spread is not None, "a limit is only there where everything was measured"
    return spread.median


def show_spread(spread: Spread | None, factor: float = 1.0, digits: int = 2) -> str:
    """The median times `factor`, and half the distance of the quartiles; a dash for None."""
    if spread is None:
        return "-"
    text = f"{factor * spread.median:.{digits}f}"
    # One round has no spread.
    return text if spread.low == spread.high else f"{text} ±{(spread.high - spread.low) / 2 / spread.median:.0%}"


def _over(summary: ArmSummary, other: ArmSummary | None, name: str) -> str:
    return "-" if other is None else show_spread(ratio(getattr(summary, name), getattr(other, name)))


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _as_dict(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
