"""Tables, sentences, Markdown and JSON of a sweep."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tests.unit.bench.load.cases import ARMS, K_1, K_4, RATES, results, run
from vllm_spec_plugin.bench.load import report
from vllm_spec_plugin.bench.load.arms import OPTIMAL
from vllm_spec_plugin.bench.load.records import Progress
from vllm_spec_plugin.bench.load.sweep import SweepResults, results_of
from vllm_spec_plugin.bench.load.workloads import EASY, HARD, MIXED

ORIGIN: dict[str, Any] = {
    "arguments": ["bench", "load", "--rounds", "3"],
    "machine": {"cores": 2, "cpu": "a processor"},
    "versions": {"vllm": "0.32.0"},
    "date": "2026-01-02T03:04:05+00:00",
}


def shown(found: SweepResults, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for table in report.tables(found):
        console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def page(found: SweepResults, on_cpu: bool = False, picture: str | None = None) -> str:
    return report.to_markdown(found, ORIGIN, on_cpu, picture)


def cells(lines: list[str], title: str, name: str, which: int = 0) -> list[str]:
    """The cells behind the arm's name in the rich table of that title; its `which`-th row there."""
    start = next(i for i, text in enumerate(lines) if text.startswith(title))
    rows = [text for text in lines[start + 4 :] if f"{name} " in text]
    return rows[which].partition(name)[2].replace("*", "").split()


def row(text: str, title: str, name: str) -> list[str]:
    """The cells of an arm in the Markdown table whose first column is called `title`."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {title}"))
    line = next(line for line in lines[start:] if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_each_level_has_speed_and_ratios_of_every_arm() -> None:
    lines = shown(results(rounds=1))
    assert cells(lines, "Load: easy", "optimal") == ["49.0", "2.45", "0.98", "3.50", "4.0"]
    assert cells(lines, "Load: easy", "optimal", 1) == ["109", "1.09", "0.99", "3.50", "4.0"]
    assert cells(lines, "Load: easy", "none") == ["20.0", "1.00", "0.40", "-", "0.0"]


def test_the_best_fixed_arm_is_marked_at_each_level() -> None:
    marked = [text.split("*")[0].strip() for text in shown(results()) if " * " in text]
    assert [text.removeprefix("1").removeprefix("8").strip() for text in marked[:2]] == [K_4, K_1]


def test_spread_is_shown_between_rounds() -> None:
    assert cells(shown(results(rounds=3)), "Load: easy", "K = 4")[:3] == ["51.0", "±1%", "2.50"]


def test_the_tables_of_load_fit_80_columns() -> None:
    lines = shown(results())
    assert not any("…" in text for text in lines)


def test_windows_of_each_phase_are_shown() -> None:
    lines = shown(results())
    title = "Switching, 1 stream, phase 2 (hard)"
    assert cells(lines, title, "optimal") == ["12.0", "17.0", "19.0", "20.0", "100"]
    assert cells(lines, "Switching, 1 stream, phase 3 (easy)", "optimal")[-1] == "never"


def test_the_lowest_and_highest_ratios_are_told_with_their_levels() -> None:
    first, second, *_ = report.sentences(results())
    assert first == (
        "easy: optimal is at 1.09 (8 streams) to 2.45 (1 stream) times none and 0.98 (1 stream) to 0.99 (8 streams) "
        "times the best fixed K."
    )
    assert second.startswith("switching, 1 stream: optimal is near the best after so many tokens: phase 1 (easy) 0 (")
    assert "phase 2 (hard) 100 (best: none), phase 3 (easy) never (best: K = 4)" in second


def test_the_share_of_predictable_text_in_a_mixture_is_told() -> None:
    runs = [
        run(name, [Progress([1.0], [100], {EASY: easy, HARD: 100 - easy}, 1)], workload=MIXED)
        for name, easy in zip(ARMS, (50, 51, 64, 52, 53), strict=True)
    ]
    assert next(report.sentences(results_of(runs, ARMS, [(MIXED, 1)]))) == (
        "mixed: of the output tokens, 50% (none, 1 stream) to 64% (K = 4, 1 stream) are predictable text's."
    )


def test_without_optimal_nothing_is_told_of_it() -> None:
    found = results()
    arms = tuple(name for name in found.arms if name != OPTIMAL)
    assert list(report.sentences(SweepResults(arms, found.fixed, found.summaries, found.rounds, found.switches))) == []


@pytest.mark.parametrize(
    ("on_cpu", "switching", "is_there"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_stock_text_above_temperature_0_is_warned_of_on_cpu(on_cpu: bool, switching: bool, is_there: bool) -> None:
    assert (report.STOCK_NOTE in report.notes(results(switching=switching), on_cpu)) == is_there


def test_the_page_has_the_command_and_a_table_per_figure() -> None:
    text = page(results(rounds=1), picture="load.png")
    assert "```\nvllm-spec bench load --rounds 3\n```" in text
    assert "![Throughput over that without drafts](load.png)" in text
    assert "2 cores of a processor, vLLM 0.32.0, 2026-01-02." in text
    assert row(text, "tokens/s", "K = 4") == ["**50.0**", "80.0"]
    assert row(text, "tokens/s", "K = 1") == ["30.0", "**110**"]
    assert row(text, "over none", "optimal") == ["2.45", "1.09"]
    assert row(text, "over the best fixed K", "optimal") == ["0.98", "0.99"]
    assert row(text, "acceptance length", "none") == ["-", "-"]
    assert row(text, "Tokens/s from token ... on, 1 stream, phase 2", "optimal")[-1] == "100"


def test_the_page_does_without_a_picture() -> None:
    assert "![" not in page(results())


def test_all_rows_of_a_markdown_table_are_as_long() -> None:
    for part in page(results()).split("\n\n"):
        if part.startswith("|"):
            assert len({line.count("|") for line in part.splitlines()}) == 1


def test_without_fixed_arms_there_is_no_best_one() -> None:
    found = results()
    found = SweepResults(found.arms, (), found.summaries, found.rounds)
    assert "best fixed K |" not in page(found)
    assert cells(shown(found), "Load: easy", "optimal")[2:4] == ["2.45", "-"]
    assert "best fixed" not in next(report.sentences(found))


def test_json_holds_every_figure_and_where_it_comes_from() -> None:
    values = json.loads(json.dumps(report.to_json(results(), {"seed": 5})))
    assert values["provenance"] == {"seed": 5}
    assert values["arms"] == list(RATES)
    cell = next(cell for cell in values["cells"] if (cell["arm"], cell["streams"]) == (OPTIMAL, 8))
    assert (cell["workload"], cell["best_fixed"]) == ("easy", K_1)
    assert cell["ratios"]["best_fixed"]["median"] == pytest.approx(109 / 110)
    assert cell["median"]["median"] == pytest.approx(109 * 1.02)
    (level,) = values["switching"]["levels"]
    assert level["phases"][1]["recovered"][OPTIMAL] == 100
    assert len(values["others"]) == 3 * 3 * len(RATES)
