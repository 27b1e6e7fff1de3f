"""The report of a load sweep."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.tools.bench.load.cases import ARMS, K_1, K_4, STOCK, results, run
from vllm_spec_plugin.tools.bench.arm_spec import NONE, OPTIMAL
from vllm_spec_plugin.tools.bench.load.agreement import Agreement
from vllm_spec_plugin.tools.bench.load.records import Progress
from vllm_spec_plugin.tools.bench.load.report import report_of
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults, results_of
from vllm_spec_plugin.tools.bench.load.workloads import EASY, HARD, MIXED
from vllm_spec_plugin.tools.report import Chart, Report


def report(found: SweepResults, rounds: int = 3, on_cpu: bool = True) -> Report:
    return report_of(found, {}, rounds, on_cpu)


def row(found: SweepResults, title: str, name: str) -> list[str]:
    """The cells of an arm in the table of that title."""
    (table,) = (table for table in report(found).tables if table.title.startswith(title))
    (cells,) = (cells for cells in table.rows if cells[0] == name)
    return list(cells[1:])


def test_there_is_a_table_per_figure_with_a_column_per_level() -> None:
    found = results(rounds=1, agreements={(K_4, EASY, 8): Agreement(9, 2, 0), (STOCK, EASY, 8): Agreement(9, 0, 3)})
    assert row(found, "easy: tokens/s", K_4) == ["50.0 *", "80.0"]
    assert row(found, "easy: tokens/s", K_1) == ["30.0", "110 *"]
    assert row(found, "easy: speedup over no speculation", OPTIMAL) == ["2.45", "1.09"]
    assert row(found, "easy: throughput over the best fixed K", OPTIMAL) == ["0.98", "0.99"]
    assert row(found, "easy: acceptance length", OPTIMAL) == ["3.50", "3.50"]
    assert row(found, "easy: acceptance length", NONE) == ["-", "-"]
    assert row(found, "easy: draft tokens", OPTIMAL) == ["4.00", "4.00"]
    assert row(found, "easy: TPOT, ms", K_4) == ["20.0", "12.5"]
    assert row(found, "easy: TPOT over", OPTIMAL) == ["0.41", "0.92"]
    assert row(found, "easy: TTFT, ms", K_4) == ["40.0", "25.0"]
    assert row(found, "switching: TTFT, ms", K_4) == ["-"]
    assert row(found, "easy: greedy", K_4) == ["-", "2 tied"]
    assert row(found, "easy: greedy", STOCK) == ["-", "3 WRONG"]
    assert row(found, "switching, 1 stream, phase 2 (hard)", OPTIMAL) == ["12", "17", "19", "20", "100"]
    assert row(found, "switching, 1 stream, phase 3 (easy)", OPTIMAL)[-1] == "never"


def test_the_spread_between_rounds_is_shown() -> None:
    assert row(results(rounds=3), "easy: tokens/s", K_4)[0] == "51.0 ±1% *"


def test_without_fixed_arms_there_is_no_best_one() -> None:
    text = str(report(replace(results(), fixed=())))
    assert "best fixed K" not in text


def test_the_conclusion_has_lowest_and_highest_ratios_with_their_levels() -> None:
    conclusion = report(results(agreements={(OPTIMAL, EASY, 1): Agreement(9, 1, 0)})).conclusion
    assert conclusion[0] == (
        "easy: the throughput of optimal is 1.09 (8 streams) to 2.45 (1 stream) times no speculation and "
        "0.98 (1 stream) to 0.99 (8 streams) times the best fixed K."
    )
    assert "All 9 greedy outputs are those of no speculation, up to ties." in conclusion
    assert conclusion[-1] == (
        "switching, 1 stream: tokens until optimal is near the best arm: phase 1 (easy): 0, phase 2 (hard): 100, "
        "phase 3 (easy): never."
    )


def test_without_optimal_every_arm_is_compared_with_no_speculation() -> None:
    found = results(switching=False)
    arms = tuple(name for name in found.arms if name != OPTIMAL)
    conclusion = report(replace(found, arms=arms)).conclusion
    assert [text.split(" is ")[0] for text in conclusion] == [f"easy: the throughput of {arm}" for arm in arms[1:]]


def test_the_share_of_predictable_text_in_a_mixture_is_shown() -> None:
    runs = [
        run(name, [Progress([1.0], [100], {EASY: easy, HARD: 100 - easy}, 1)], workload=MIXED)
        for name, easy in zip(ARMS, (50, 51, 64, 52, 53), strict=True)
    ]
    assert row(results_of(runs, ARMS, [(MIXED, 1)], {}), "mixed: share of predictable", K_4) == ["0.64"]


def test_wrong_outputs_and_missing_rounds_are_problems() -> None:
    found = report(results(agreements={(OPTIMAL, EASY, 1): Agreement(9, 1, 2)}), rounds=5)
    assert found.problems == [
        "interrupted: these are the first 3 of 5 rounds",
        "2 greedy outputs differ from those of arm no speculation",
    ]
    assert not any("All 9" in text for text in found.conclusion)


@pytest.mark.parametrize(
    ("on_cpu", "switching", "is_drawn"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_what_is_wrong_on_cpu_is_told_and_not_drawn(on_cpu: bool, switching: bool, is_drawn: bool) -> None:
    found = report(results(switching=switching), on_cpu=on_cpu)
    assert any("On CPU vLLM's own sampler" in note for note in found.notes) != is_drawn
    charts: Any = found.charts
    assert all(isinstance(chart, Chart) for chart in charts)
    assert len(charts) == 2 + switching
    assert (STOCK in [line.name for line in charts[-1].lines]) == is_drawn
    assert STOCK in [line.name for line in charts[0].lines]


def test_lines_have_the_figures_and_the_phases_of_a_switch() -> None:
    speedup, tpot, switch = (chart for chart in report(results()).charts if isinstance(chart, Chart))
    lines = {line.name: line for line in speedup.lines}
    assert lines[NONE].role == "reference"
    assert lines[OPTIMAL].role == "main"
    point: Any = lines[OPTIMAL].points[1]
    assert point.median == pytest.approx(2.45)
    point = {line.name: line for line in tpot.lines}[NONE].points[1]
    assert point.median == pytest.approx(1e3 / 20 / 1.02)
    assert list(switch.sections) == [(200, "easy"), (400, "hard"), (600, "easy")]
    assert len(switch.lines[0].points) == 12


def test_programs_get_arms_agreements_and_switches() -> None:
    data = report(results(agreements={(OPTIMAL, EASY, 8): Agreement(9, 2, 0)})).data
    assert data["arms"] == list(ARMS)
    assert data["best_fixed"][1] == {"workload": EASY, "level": 8, "arm": K_1}
    assert data["agreements"] == [
        {"arm": OPTIMAL, "workload": EASY, "level": 8, "outputs": 9, "rounding": 2, "wrong": 0}
    ]
    assert data["switching"]["levels"][0]["phases"][1]["recovered"][OPTIMAL] == 100
    assert len(data["others"]) == 3 * 3 * len(ARMS)
