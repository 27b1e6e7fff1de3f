"""The report of a load test: conclusion, tables, charts, and what programs get."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtests.report.charts import charts_of, percentiles, spread
from loadtests.report.numbers import count, number, percent, time_text
from loadtests.report.report import report_of
from loadtests.report.result import Result, conclusion
from loadtests.stream.timing import ErrorKind
from tests.unit.loadtests.results import MIXED, SERVER, answered, failed, origin, result
from vllm_spec_tools.report import Table, write

GOOD = result(
    {"chat": [answered(0.0), answered(1.0)]},
    server=dataclasses.replace(SERVER, requests=2.0, prompt_tokens=20.0, output_tokens=42.0),
)


def tables(found: Result) -> dict[str, Table]:
    return {table.title: table for table in report_of(found, origin()).tables}


def test_the_conclusion_says_outcome_figures_and_whether_the_server_agrees() -> None:
    assert conclusion(GOOD) == [
        "All 2 requests succeeded: 0.909 requests/s, 19.1 output tokens/s, TTFT p95 200 ms, TPOT p95 50.0 ms.",
        "The server counted the same 2 requests, 20 prompt tokens and 42 output tokens.",
    ]
    assert GOOD.counts_agree
    outcome, check = conclusion(dataclasses.replace(MIXED, sent=33, missing_workers=1))
    assert outcome.startswith("2 of 30 requests failed: ")
    assert outcome.endswith("46.7% met the SLO (TTFT ≤ 300 ms, TPOT ≤ 60.0 ms).")
    assert check.endswith("(2 requests failed, 3 were given up at the end, 1 workers sent no last samples).")
    assert not MIXED.counts_agree


@pytest.mark.parametrize(
    ("measures", "words"),
    [({}, "No request ended."), ({"chat": [failed(0.0), failed(1.0)]}, "All 2 requests failed.")],
)
def test_the_conclusion_of_a_test_without_success(measures: Any, words: str) -> None:
    assert conclusion(result(measures, server=None)) == [words, "The server's /metrics could not be read."]


def test_programs_get_all_figures(tmp_path: Path) -> None:
    write(report_of(MIXED, origin()), json=tmp_path / "a.json", csv=tmp_path / "a.csv")
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["report"], found["model"], found["conclusion"]) == ("loadtest", "llama", conclusion(MIXED))
    assert (found["options"]["host"], found["options"]["num_users"]) == ("http://localhost:8000", 8)
    assert (found["all"]["requests"], found["all"]["goodput"]["good"]) == (30, 14)
    assert {name: summary["succeeded"] for name, summary in found["scenarios"].items()} == {"chat": 14, "edit": 14}
    assert (found["server"]["acceptance_length"], found["server"]["agrees_with_clients"]) == (3.5, False)
    assert found["provenance"]["versions"].keys() >= {"vllm_spec_plugin", "locust"}
    values = {(row["workload"], row["metric"]): (row["level"], row["value"]) for row in found["measurements"]}
    assert values["chat", "ttft_p95"] == (8.0, pytest.approx(0.2))
    assert values["all", "failed"] == (8.0, 2)
    assert (tmp_path / "a.csv").read_text().startswith("arm,workload,level,round,metric,value\n")
    assert report_of(dataclasses.replace(MIXED, server=None), origin()).data["server"] is None


def test_every_scenario_has_a_row_below_all() -> None:
    table = tables(MIXED)["Requests by scenario; times in ms"]
    rows = {name: cells for name, *cells in table.rows}
    assert list(rows) == ["all", "chat", "edit"]
    assert {len(cells) + 1 for cells in rows.values()} == {len(table.header)}
    assert rows["chat"] == ["16", "2", *["200"] * 3, *["50.0"] * 3, *["1,200"] * 3, "100", "1.91", "17.5"]
    (_, *cells), *_ = tables(result({"chat": [failed(0)]}))["Requests by scenario; times in ms"].rows
    assert cells == ["1", "1", *["-"] * 12]


def test_failures_and_missing_workers_are_problems() -> None:
    kinds = [failed(0, ErrorKind.CUT, ""), failed(1, ErrorKind.HTTP_5XX, "first"), failed(2, ErrorKind.HTTP_5XX, "x")]
    found = result({"chat": kinds}, workers=4, missing_workers=1)
    assert tables(found)["Errors"].rows == [["http_5xx", "first", "2", "66.7%"], ["cut", "-", "1", "33.3%"]]
    problems = report_of(found, origin()).problems
    assert problems == ["3 requests failed.", "1 of 4 worker processes sent no last samples."]
    assert not report_of(GOOD, origin()).problems
    assert "Errors" not in tables(GOOD)


def test_counts_of_clients_and_server_stand_side_by_side() -> None:
    rows = {name: cells for name, *cells in tables(MIXED)["Counts of clients and server"].rows}
    assert rows["output tokens"] == ["588", "5,100"]
    assert rows["acceptance rate"] == ["", "62.5%"]
    assert "Counts of clients and server" not in tables(dataclasses.replace(MIXED, server=None))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (9.999, "10.0"),
        (99.96, "100"),
        (12345.6, "12,346"),
        (-1.2345, "-1.23"),
        (None, "-"),
    ],
)
def test_numbers_have_three_digits_and_all_before_the_point(value: float | None, text: str) -> None:
    assert number(value) == text


def test_times_shares_and_counts() -> None:
    times = [time_text(seconds) for seconds in (0, 0.00123, 1.234, 9.99, 10, 123.4, None)]
    assert times == ["0 ms", "1.23 ms", "1,234 ms", "9,990 ms", "10.0 s", "123 s", "-"]
    assert (percent(0.9313), percent(None), count(1234567), count(None)) == ("93.1%", "-", "1,234,567", "-")


def test_amounts_are_spread_evenly_and_none_is_lost() -> None:
    edges = np.array([0.0, 1, 2, 3, 4])
    begins, ends, amounts = np.array([0.5, 1, 4, 0.0]), np.array([2.5, 1, 4, 4]), np.array([20.0, 7, 3, 0])
    np.testing.assert_allclose(spread(begins, ends, amounts, edges), np.array([5.0 + 7, 10, 5, 3]), atol=1e-4)
    nothing = np.array([])
    np.testing.assert_array_equal(spread(nothing, nothing, nothing, edges), np.zeros(4))


def test_percentiles_are_of_values_with_similar_times() -> None:
    times = [*np.linspace(0, 0.9, 24), *np.linspace(3, 3.9, 24)]
    middles, (p50, p95) = percentiles(times, [1.0] * 24 + [2.0] * 24, 4.0)
    np.testing.assert_allclose(middles, [0.5, 3.5])
    np.testing.assert_allclose([p50, p95], [[1, 2], [1, 2]])


def test_charts_show_load_throughput_latencies_and_limits() -> None:
    found = {chart.title: chart for chart in charts_of(MIXED)}
    assert list(found) == [
        "load",
        "throughput",
        "time to first token",
        "time per output token",
    ]
    assert found["time to first token"].names == ["p95", "median", "SLO"]


def test_requests_are_in_flight_from_their_start_to_their_end() -> None:
    load, *_ = charts_of(result({"chat": [answered(0.0), answered(1.0)]}))
    points: Any = load.lines[0].points
    assert [next(points[x] for x in points if x >= when) for when in (0.0, 0.9, 1.05, 1.25)] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    ("measures", "num_charts"),
    [({}, 0), ({"chat": [failed(0.0)]}, 2), ({"chat": [answered(0.0, tokens=1)]}, 3)],
    ids=["none", "failed", "one"],
)
def test_tests_that_show_little_have_a_page_too(tmp_path: Path, measures: Any, num_charts: int) -> None:
    found = report_of(result(measures, server=None, model="/models/llama"), origin())
    assert (found.title, len(found.charts)) == ("Load test of llama", num_charts)
    write(found, html=tmp_path / "a.html", markdown=tmp_path / "a.md")
    assert found.conclusion[0] in (tmp_path / "a.html").read_text()
