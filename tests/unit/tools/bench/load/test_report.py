"""The report of a load sweep."""

from tests.unit.tools.bench.load.cases import K_1, K_4, STOCK, results
from vllm_spec_plugin.tools.bench.arms import NONE, OPTIMAL
from vllm_spec_plugin.tools.bench.load.agreement import Agreement
from vllm_spec_plugin.tools.bench.load.report import report_of
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.workloads import EASY
from vllm_spec_plugin.tools.report import Report


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


def test_wrong_outputs_and_missing_rounds_are_problems() -> None:
    found = report(results(agreements={(OPTIMAL, EASY, 1): Agreement(9, 1, 2)}), rounds=5)
    assert found.problems == [
        "interrupted: these are the first 3 of 5 rounds",
        "2 greedy outputs differ from those of arm no speculation",
    ]
    assert not any("All 9" in text for text in found.conclusion)
