"""The report of a load sweep."""

from dataclasses import replace

import pytest

from tests.unit.tools.bench.load.cases import ARMS, K_1, K_4, STOCK, results, run, steady
from vllm_spec_tools.bench.arms import NONE, OPTIMAL
from vllm_spec_tools.bench.load.report import report_of
from vllm_spec_tools.bench.load.sweep import Agreement, SweepResults, results_of
from vllm_spec_tools.bench.load.workloads import EASY
from vllm_spec_tools.report import Report
from vllm_spec_tools.report.measurements import Spread


def report(found: SweepResults, rounds: int = 3) -> Report:
    return report_of(found, {}, rounds)


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
    assert row(found, "easy: speedup over vLLM's fastest arm", OPTIMAL) == ["1.23", "1.56"]
    assert row(found, "easy: speedup over the best fixed K", OPTIMAL) == ["0.98", "0.99"]
    assert row(found, "easy: draft tokens", OPTIMAL) == ["4.00 (3.50)", "4.00 (3.50)"]
    assert row(found, "easy: draft tokens", NONE) == ["0.00", "0.00"]
    assert row(found, "easy: TPOT, ms (p50/p95/p99)", K_4) == ["20.0/20.0/20.0", "12.5/12.5/12.5"]
    assert row(found, "easy: TTFT, ms (p50/p95/p99)", K_4) == ["40.0/166/177", "25.0/104/111"]
    assert row(found, "easy: latency, ms (p50/p95/p99)", K_4) == ["400/400/400", "250/250/250"]
    assert not [table for table in report(found).tables if table.title.startswith("switching: TTFT")]
    assert row(found, "easy: greedy", K_4) == ["-", "2 tied"]
    assert row(found, "easy: greedy", STOCK) == ["-", "3 WRONG"]


def test_the_conclusion_compares_with_none_with_vllms_fastest_and_with_the_best_fixed_length() -> None:
    conclusion = report(results(agreements={(OPTIMAL, EASY, 1): Agreement(9, 1, 0)})).conclusion
    expected = {
        "easy: optimal over no speculation": ("2.45", "1.09"),
        "easy: optimal over vLLM's fastest arm": ("1.23", "1.56"),
        "easy: optimal over the best fixed K": ("0.98", "0.99"),
        "easy: vLLM's ngram, K = 4 over no speculation": ("2.00", "0.70"),
    }
    assert conclusion[:4] == [
        f"{what}: {one} times at 1 stream ({one} to {one}), {eight} times at 8 streams ({eight} to {eight})."
        for what, (one, eight) in expected.items()
    ]
    assert "All 9 greedy outputs are those of no speculation, up to ties." in conclusion


def noisy(*ratios: float, counts: tuple[int, int, int] = (40, 160, 100)) -> SweepResults:
    """No speculation and `optimal` at one stream; a ratio per round."""
    runs = [
        run(arm, [steady(rate)], number=number, counts=counts if arm == OPTIMAL else (0, 0, 0))
        for number, ratio in enumerate(ratios)
        for arm, rate in ((NONE, 20.0), (OPTIMAL, 20.0 * ratio))
    ]
    return results_of(runs, {arm: ARMS[arm] for arm in (NONE, OPTIMAL)}, [(EASY, 1)], {})


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (noisy(1.07, 0.7, 1.45), "1.07 times at 1 stream (within noise, 0.70 to 1.45)"),
        (noisy(1.04, 1.05, 1.06), "1.05 times at 1 stream (1.04 to 1.06)"),
        (noisy(0.94, 0.95, 0.96), "0.95 times at 1 stream (0.94 to 0.96)"),
        (noisy(1.3), "1.30 times at 1 stream (one round: noise unknown)"),
        (
            noisy(1.07, 0.7, 1.45, counts=(0, 0, 0)),
            "1.07 times at 1 stream (within noise, 0.70 to 1.45, nothing drafted)",
        ),
    ],
)
def test_the_conclusion_knows_its_noise_and_where_nothing_was_drafted(found: SweepResults, text: str) -> None:
    assert report(found).conclusion[0] == f"easy: optimal over no speculation: {text}."
    assert row(found, "easy: speedup over no", OPTIMAL)[0].startswith("~") == ("within noise" in text)


def test_programs_get_a_cell_per_arm_workload_and_level() -> None:
    found = results(rounds=3, agreements={(K_4, EASY, 8): Agreement(9, 2, 0)})
    cells = {(one["arm"], one["workload"], one["streams"]): one for one in report(found).data["cells"]}
    assert len(cells) == len(ARMS) * len(found.cells)
    cell = cells[K_4, EASY, 8]
    assert cell["tokens_per_second"]["median"] == pytest.approx(80 * 1.02)
    assert [cell["ratio"][name] for name in ("median", "low", "high")] == pytest.approx([0.8, 0.8, 0.8])
    assert cell["ratio"]["differs"] is True
    assert (cell["over_vllm"]["arm"], cell["over_vllm"]["median"]) == (STOCK, pytest.approx(80 / 70))
    assert cells[STOCK, EASY, 8]["over_vllm"] is None
    assert cell["ttft"]["p50"] == pytest.approx(2 / 81.6)
    assert (cell["rounds"], cell["drafts"], cell["draft_tokens"], cell["accepted_tokens"]) == (3, 120, 480, 300)
    assert cell["greedy"] == {"outputs": 9, "rounding": 2, "wrong": 0}
    assert (cells[NONE, EASY, 8]["greedy"], cells[NONE, EASY, 8]["ratio"]["median"]) == (None, 1.0)


def test_wrong_outputs_and_missing_rounds_are_problems() -> None:
    found = report(results(agreements={(OPTIMAL, EASY, 1): Agreement(9, 1, 2)}), rounds=5)
    assert found.problems == [
        "interrupted: these are the first 3 of 5 rounds",
        "2 greedy outputs differ from those of arm no speculation",
    ]
    assert not any("All 9" in text for text in found.conclusion)


def test_preemptions_are_told_where_they_were() -> None:
    assert not any("Preemptions" in note for note in report(results()).notes)
    runs = [run(arm, [steady(10.0)], streams=2, number=number) for arm in (NONE, STOCK) for number in range(2)]
    runs = [replace(one, answer=replace(one.answer, preemptions=3)) if one.arm == STOCK else one for one in runs]
    found = report(results_of(runs, {arm: ARMS[arm] for arm in (NONE, STOCK)}, [(EASY, 2)], {}), rounds=2)
    (note,) = (note for note in found.notes if "too small" in note)
    assert f"Preemptions: {EASY}, 2 streams, {STOCK}: 6." in note
    assert [cell["preemptions"] for cell in found.data["cells"]] == [0, 6]


def test_categories_of_a_file_are_rows_and_their_mean_is_the_conclusion() -> None:
    speeds = {"writing": (1.0, 1.1), "qa": (4.0, 4.4)}
    runs = [
        run(arm, [steady(20.0 * ratio)], workload=category, number=number, counts=counts)
        for category, ratios in speeds.items()
        for number in (0, 1)
        for arm, ratio, counts in ((NONE, 1.0, (0, 0, 0)), (OPTIMAL, ratios[number], (40, 160, 100)))
    ]
    found = results_of(runs, {arm: ARMS[arm] for arm in (NONE, OPTIMAL)}, [("writing", 1), ("qa", 1)], {})
    shown = report(found)
    gains, lengths, speed = shown.tables[:3]
    assert gains.title == "categories: speedup over no speculation"
    assert gains.header == ["category", "arm", "1 stream"]
    assert gains.rows == [["writing", OPTIMAL, "~1.05 (1.00-1.10)"], ["qa", OPTIMAL, "4.20 (4.00-4.40)"]]
    assert lengths.rows == [["writing", OPTIMAL, "4.00 (3.50)"], ["qa", OPTIMAL, "4.00 (3.50)"]]
    assert [row[:2] for row in speed.rows] == [["writing", NONE], ["", OPTIMAL], ["qa", NONE], ["", OPTIMAL]]
    # The geometric mean over categories in each round.
    assert shown.conclusion == [
        "2 categories: optimal over no speculation: 2.10 times at 1 stream (2.00 to 2.20, writing 1.05 to qa 4.20)."
    ]
    [chart] = shown.charts
    assert chart.title == "throughput, mean over 2 categories"
    [_, mean] = chart.lines
    [(level, spread)] = mean.points.items()
    assert isinstance(spread, Spread)
    assert (mean.name, level) == (OPTIMAL, 1)
    assert spread.median == pytest.approx(2.1, rel=0.01)
    assert any("fewer than streams times rounds" in note for note in shown.notes)
