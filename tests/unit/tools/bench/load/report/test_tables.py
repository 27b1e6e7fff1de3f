"""Tables of a sweep in a terminal."""

import io
from dataclasses import replace

from rich.console import Console

from tests.unit.tools.bench.load.cases import K_1, K_4, STOCK, results
from vllm_spec_plugin.tools.bench.arm_words import OPTIMAL
from vllm_spec_plugin.tools.bench.load.agreement import Agreement
from vllm_spec_plugin.tools.bench.load.report.tables import tables
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.workloads import EASY


def shown(found: SweepResults, width: int = 80) -> list[str]:
    """The tables' lines."""
    console = Console(file=io.StringIO(), width=width)
    for table in tables(found):
        console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def cells(lines: list[str], title: str, name: str, which: int = 0) -> list[str]:
    """The cells behind the arm's name in the table of that title; its `which`-th row there."""
    start = next(i for i, text in enumerate(lines) if text.startswith(title))
    rows = [text for text in lines[start + 4 :] if f"{name} " in text]
    return rows[which].partition(name)[2].replace("*", "").split()


def test_each_level_has_speed_and_ratios_of_every_arm() -> None:
    lines = shown(results(rounds=1))
    assert cells(lines, "Throughput: easy", "optimal") == ["49.0", "2.45", "0.98", "3.50", "4.0"]
    assert cells(lines, "Throughput: easy", "optimal", 1) == ["109", "1.09", "0.99", "3.50", "4.0"]
    assert cells(lines, "Throughput: easy", "none") == ["20.0", "1.00", "0.40", "-", "0.0"]


def test_each_level_has_latencies_of_every_arm() -> None:
    lines = shown(results(rounds=1))
    assert cells(lines, "Latency: easy", "optimal") == ["20.4", "0.41", "40.8", "-"]
    assert cells(lines, "Latency: easy", "K = 1", 1) == ["9.09", "0.91", "18.2", "-"]
    assert cells(lines, "Latency: switching", "optimal") == ["-", "-", "-", "-"]


def test_greedy_outputs_are_equal_tied_or_wrong() -> None:
    agreements = {
        (K_1, EASY, 1): Agreement(9, 0, 0),
        (K_4, EASY, 1): Agreement(9, 2, 0),
        (STOCK, EASY, 1): Agreement(9, 1, 3),
    }
    lines = shown(results(rounds=1, agreements=agreements))
    assert cells(lines, "Latency: easy", "none")[-1] == "(these)"
    assert cells(lines, "Latency: easy", K_1)[-1] == "equal"
    assert cells(lines, "Latency: easy", K_4)[-2:] == ["2", "tied"]
    assert cells(lines, "Latency: easy", STOCK)[-2:] == ["3", "WRONG"]
    assert cells(lines, "Latency: easy", OPTIMAL)[-1] == "-"
    assert cells(lines, "Latency: easy", "none", 1)[-1] == "-"


def test_the_best_fixed_arm_is_marked_at_each_level() -> None:
    marked = [text.split("*")[0].strip() for text in shown(results()) if " * " in text]
    assert [text.removeprefix("1").removeprefix("8").strip() for text in marked[:2]] == [K_4, K_1]


def test_spread_is_shown_between_rounds() -> None:
    lines = shown(results(rounds=3))
    assert cells(lines, "Throughput: easy", "K = 4")[:3] == ["51.0", "±1%", "2.50"]
    assert cells(lines, "Latency: easy", "K = 4")[:2] == ["19.6", "±1%"]


def test_tables_fit_80_columns() -> None:
    agreements = {(K_4, EASY, 8): Agreement(200, 100, 0)}
    assert not any("…" in text for text in shown(results(agreements=agreements)))


def test_a_long_path_goes_on_in_a_further_line() -> None:
    found, path = results(switching=False), "configs/of/somebody/with/a/long/name/draft_model_optimal.yaml"
    arms = (*found.arms, path)
    summaries = {(arm, EASY, level): found.summaries[found.arms[-1], EASY, level] for arm in arms for level in (1, 8)}
    lines = shown(replace(found, arms=arms, summaries=summaries, fixed=()))
    assert not any("…" in text for text in lines)
    assert any(text.strip().endswith(".yaml") for text in lines)


def test_windows_of_each_phase_are_shown() -> None:
    lines = shown(results())
    title = "Switching, 1 stream, phase 2 (hard)"
    assert cells(lines, title, "optimal") == ["12.0", "17.0", "19.0", "20.0", "100"]
    assert cells(lines, "Switching, 1 stream, phase 3 (easy)", "optimal")[-1] == "never"


def test_without_fixed_arms_there_is_no_best_one() -> None:
    lines = shown(replace(results(rounds=1, switching=False), fixed=()))
    assert cells(lines, "Throughput: easy", "optimal") == ["49.0", "2.45", "3.50", "4.0"]
    assert not any("best" in text for text in lines)
