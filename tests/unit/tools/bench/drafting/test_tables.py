"""Tables of what drafting costs."""

import dataclasses
import io

import pytest
from rich.console import Console

from tests.unit.tools.bench.drafting.cases import PLUGIN, STOCK, results
from vllm_spec_plugin.tools.bench.arm_words import NONE
from vllm_spec_plugin.tools.bench.drafting.comparison import Results
from vllm_spec_plugin.tools.bench.drafting.parts import CHOICE, FORWARD
from vllm_spec_plugin.tools.bench.drafting.tables import tables


def shown(found: Results, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for table in tables(found):
        console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def line(lines: list[str], title: str, arm: str) -> list[str]:
    """The cells of an arm in the first table of that title."""
    start = next(i for i, text in enumerate(lines) if text.startswith(title))
    return next(text for text in lines[start + 4 :] if f" {arm} " in text).partition(f" {arm} ")[2].split()


def test_draft_step_table_has_milliseconds_and_ratios() -> None:
    lines = shown(results())
    assert line(lines, "Draft step", STOCK) == ["0.72", "-", "0.80", "-"]
    assert line(lines, "Draft step", PLUGIN) == ["0.36", "0.50", "0.40", "0.50"]
    assert not any(NONE in text.split() for text in lines[: next(i for i, t in enumerate(lines) if "Limit" in t)])


def test_without_stock_there_is_nothing_to_compare_with() -> None:
    found = results()
    arms = {arm: k for arm, k in found.arms.items() if arm != STOCK}
    assert line(shown(Results(arms, found.summaries, [])), "Draft step", PLUGIN) == ["0.36", "-", "0.40", "-"]


def test_limit_table_goes_from_free_to_measured() -> None:
    cells = line(shown(results()), "Limit", PLUGIN)
    assert cells == ["2.00", "3.00", "1.60", "3.00x", "2.00x", "1.30x", "1.17x", "10%"]


def test_shares_are_of_the_whole_time() -> None:
    cells = [float(cell) for cell in line(shown(results()), "Where the time goes", PLUGIN)]
    assert cells == pytest.approx([28.2, 52.9, 14.5, 0.0, 4.4])


def test_parts_of_drafting_are_shown_where_they_were_measured() -> None:
    lines = shown(results(parts={FORWARD: 3.0, CHOICE: 1.0}))
    assert line(lines, "Where drafting goes", PLUGIN) == ["75.0", "25.0", "0.0", "0.0", "0.0"]
    assert not any(text.startswith("Where drafting goes") for text in shown(results()))


def test_spread_is_shown_between_rounds() -> None:
    found = results()
    summary = found.summaries[PLUGIN, 1, 0.0]
    found.summaries[PLUGIN, 1, 0.0] = dataclasses.replace(summary, draft_step={0: 1e-3, 1: 1.1e-3, 2: 0.9e-3})
    assert line(shown(found), "Draft step", PLUGIN)[:2] == ["1.00", "±5%"]


def test_tables_fit_80_columns() -> None:
    found = results(parts={FORWARD: 3.0})
    for key, summary in found.summaries.items():
        steps = {number: 12e-3 * (1 + 0.3 * number) for number in range(3)}
        found.summaries[key] = dataclasses.replace(summary, draft_step=steps, draft_step_prepared=steps)
    assert not any("…" in text for text in shown(found))
