"""Tables, sentences and JSON of a comparison."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from tests.unit.bench.cases import results
from vllm_spec_plugin.bench import report
from vllm_spec_plugin.bench.agreement import Agreement
from vllm_spec_plugin.bench.comparison import NONE, PLUGIN, STOCK, Results
from vllm_spec_plugin.bench.parts import CHOICE, FORWARD


def shown(found: Results, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for table in report.tables(found):
        console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def line(lines: list[str], title: str, arm: str) -> list[str]:
    """The cells of an arm in the first table of that title, without what is left of its name."""
    start = next(i for i, text in enumerate(lines) if text.startswith(title))
    cells = next(text.split() for text in lines[start + 4 :] if arm in text.split())
    return cells[cells.index(arm) + 1 :]


def test_draft_step_table_has_milliseconds_and_ratios() -> None:
    lines = shown(results())
    assert line(lines, "Draft step", "stock") == ["0.72", "-", "0.80", "-"]
    assert line(lines, "Draft step", "plugin") == ["0.36", "0.50", "0.40", "0.50"]
    assert not any(NONE in text.split() for text in lines[: next(i for i, t in enumerate(lines) if "End to" in t)])


def test_end_to_end_table_has_ratios_to_none_and_to_stock() -> None:
    agreements = {(PLUGIN, 1): Agreement(3, 0, 0), (STOCK, 1): Agreement(3, 0, 2)}
    lines = shown(dataclasses.replace(results(), agreements=agreements))
    assert line(lines, "End to end", "none") == ["472", "-", "1.13", "-", "-", "(these)"]
    assert line(lines, "End to end", "plugin") == ["551", "1.17", "1.32", "3.00", "0.500", "equal"]
    assert line(lines, "End to end", "stock")[-2:] == ["2", "WRONG"]


def test_outputs_that_part_at_a_tie_are_told_from_wrong_ones() -> None:
    lines = shown(dataclasses.replace(results(), agreements={(PLUGIN, 1): Agreement(3, 1, 0)}))
    assert line(lines, "End to end", "plugin")[-2:] == ["1", "tied"]


def test_limit_table_goes_from_free_to_measured() -> None:
    cells = line(shown(results()), "Limit", "plugin")
    assert cells == ["2.00", "3.00", "1.60", "3.00x", "2.00x", "1.30x", "1.17x", "10%"]


def test_without_none_there_is_no_limit() -> None:
    found = results()
    arms = {arm: k for arm, k in found.arms.items() if arm != NONE}
    found = Results(arms, {key: summary for key, summary in found.summaries.items() if key[0] != NONE})
    assert not any(text.startswith("Limit") for text in shown(found))
    assert list(report.sentences(found)) == []


def test_shares_are_of_the_whole_time() -> None:
    cells = [float(cell) for cell in line(shown(results()), "Where the time goes", "plugin")]
    assert cells == pytest.approx([28.2, 52.9, 14.5, 0.0, 4.4])


def test_parts_of_drafting_are_shown_where_they_were_measured() -> None:
    lines = shown(results(parts={FORWARD: 3.0, CHOICE: 1.0}))
    assert line(lines, "Where drafting goes", "plugin") == ["75.0", "25.0", "0.0", "0.0", "0.0"]
    assert not any(text.startswith("Where drafting goes") for text in shown(results()))


@pytest.mark.parametrize("rounds", [1, 3])
def test_tables_fit_80_columns(rounds: int) -> None:
    found = results(rounds=rounds, parts={FORWARD: 3.0})
    for key, summary in found.summaries.items():
        rates = {number: rate * (30 + 8 * number) for number, rate in summary.tokens_per_second.items()}
        found.summaries[key] = dataclasses.replace(summary, tokens_per_second=rates)
    lines = shown(dataclasses.replace(found, agreements={(PLUGIN, 1): Agreement(99, 12, 0)}))
    assert any("12 tied" in text for text in lines)
    assert not any("…" in text for text in lines)


def test_spread_is_shown_between_rounds() -> None:
    found = results()
    summary = found.summaries[PLUGIN, 1, 0.0]
    rates = {0: 100.0, 1: 110.0, 2: 90.0}
    found.summaries[PLUGIN, 1, 0.0] = dataclasses.replace(summary, tokens_per_second=rates)
    assert line(shown(found), "End to end", "plugin")[:2] == ["100", "±5%"]


def test_sentence_says_the_limit_and_the_rest() -> None:
    (text,) = report.sentences(results())
    assert text.startswith("plugin, batch 1, temperature 0: 3.00 tokens a step, so 3.00x if")
    assert "A step with 5 tokens takes 3.00 ms, one with 1 2.00 ms: 2.00x." in text
    assert "Drafting takes 4 x 0.40 ms: 1.30x. Measured: 1.17x. The rest, 10%:" in text
    assert "prompts take 15%" in text


@pytest.mark.parametrize(
    ("temperature", "on_cpu", "notes"),
    [
        (1.0, True, [report.GREEDY_NOTE, report.STOCK_NOTE]),
        (1.0, False, [report.GREEDY_NOTE]),
        (0.0, True, []),
    ],
)
def test_what_is_different_about_stock_sampling_is_noted(temperature: float, on_cpu: bool, notes: list[str]) -> None:
    assert list(report.notes(results(temperature), on_cpu))[1:] == notes


def test_json_holds_every_figure_and_where_it_comes_from() -> None:
    found = dataclasses.replace(results(), agreements={(PLUGIN, 1): Agreement(3, 1, 0)})
    values = json.loads(json.dumps(report.to_json(found, {"seed": 5})))
    assert values["provenance"] == {"seed": 5}
    assert values["reference"] == NONE
    cell = next(cell for cell in values["cells"] if cell["arm"] == PLUGIN)
    assert cell["medians"]["draft_step_prepared"]["median"] == pytest.approx(0.4e-3)
    assert cell["ratios"][STOCK]["draft_step"]["median"] == pytest.approx(0.5)
    assert cell["ratios"][NONE]["draft_step"] is None
    assert cell["limit"]["free"] == pytest.approx(3)
    assert cell["agreement"] == {"outputs": 3, "rounding": 1, "wrong": 0}


def test_wrong_outputs_are_counted_over_all_arms() -> None:
    agreements = {(PLUGIN, 1): Agreement(3, 1, 0), (STOCK, 1): Agreement(3, 0, 2), (STOCK, 8): Agreement(3, 0, 1)}
    assert report.num_wrong(dataclasses.replace(results(), agreements=agreements)) == 3
