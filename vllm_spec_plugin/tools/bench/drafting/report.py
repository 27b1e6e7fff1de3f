"""The report beside its tables: sentences and JSON. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vllm_spec_plugin.tools.bench.arm_words import is_stock
from vllm_spec_plugin.tools.bench.drafting.comparison import Results, limits
from vllm_spec_plugin.tools.bench.drafting.summary import median
from vllm_spec_plugin.tools.bench.spread import Spread, ratio

_SCHEMA = 2
_PER_ROUND = ("tokens_per_second", "target_step", "draft_step", "draft_step_prepared", "tree_step", "tree_share")
GREEDY_NOTE = (
    "Stock vLLM drafts greedily at any temperature; the plugin draws its drafts, unless told otherwise, which takes "
    "longer and is accepted more often."
)
STOCK_NOTE = (
    "On CPU stock vLLM's sampled outputs are wrong with speculation (docs/design/verification.md, \"Why not vLLM's own "
    'sampler"), its greedy ones are right: above temperature 0 read its draft step, not its acceptance.'
)


def sentences(results: Results) -> Iterator[str]:
    """Per arm of the plugin's, batch size and temperature: what the limit is, and where the rest goes."""
    for summary, found in limits(results):
        if is_stock(summary.arm):
            continue
        one, several = median(results.none(summary).target_step) * 1e3, median(summary.target_step) * 1e3
        k, drafting = summary.num_draft_tokens, median(summary.draft_step_prepared) * 1e3
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
        "T(n): a step with n tokens per request, without drafting; d: a draft step, prepared; free: the acceptance "
        "length, 1 + accepted / drafts; is: measured tokens per second; irregular: steps in "
        "which requests have ended or drafts are short."
    )
    if results.stock is not None and any(temperature > 0 for _, _, temperature in results.summaries):
        yield GREEDY_NOTE
        if on_cpu:
            yield STOCK_NOTE


def to_json(results: Results, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, in plain values; seconds, not milliseconds."""
    bounds = {(summary.arm, summary.batch, summary.temperature): asdict(found) for summary, found in limits(results)}
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
                "limit": bounds.get(key),
            }
        )
    return {"schema": _SCHEMA, "provenance": dict(provenance), "others": results.others, "cells": cells}


def _as_dict(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
