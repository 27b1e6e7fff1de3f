"""The reports of a load test: conclusion, JSON, tables, plots, page."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from loadtests.report.conclusion import conclusion, counts_agree
from loadtests.report.numbers import count, duration, number, percent, time_text, unit_for
from loadtests.report.page import page
from loadtests.report.plots import draw_chunks, draw_distribution, draw_latencies, draw_load, percentiles, spread
from loadtests.report.result import LATENCIES, as_json
from loadtests.report.tables import by_scenario, counted, failures, key_figures
from loadtests.stream.timing import ErrorKind
from tests.unit.loadtests.results import MIXED, SERVER, answered, failed, result

FORMULA = "$\\frac{$"
HOSTILE = "<script src=http://evil.example/a.js></script>\"'&$\\frac{$ </text></style>"
GOOD = result(
    {"chat": [answered(0.0), answered(1.0)]},
    server=dataclasses.replace(SERVER, requests=2.0, prompt_tokens=20.0, output_tokens=42.0),
)


class Page(HTMLParser):
    """Elements and texts of a page; raises AssertionError where it is not well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self._open:
            self.texts.append(data.strip())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def test_the_conclusion_says_outcome_figures_and_whether_the_server_agrees() -> None:
    assert conclusion(GOOD) == (
        "All 2 requests succeeded: 0.909 requests/s, 19.1 output tokens/s, TTFT p95 200 ms, TPOT p95 50.0 ms. "
        "The server counted the same 2 requests, 20 prompt tokens and 42 output tokens."
    )
    assert counts_agree(GOOD)
    text = conclusion(dataclasses.replace(MIXED, sent=33, missing_workers=1))
    assert text.startswith("2 of 30 requests failed: ")
    assert "46.7% met the SLO." in text
    assert text.endswith("(2 requests failed, 3 were given up at the end, 1 workers sent no last samples).")
    assert not counts_agree(MIXED)


@pytest.mark.parametrize(
    ("measures", "words"),
    [({}, "No request ended."), ({"chat": [failed(0.0), failed(1.0)]}, "All 2 requests failed.")],
)
def test_the_conclusion_of_a_test_without_success(measures: Any, words: str) -> None:
    assert conclusion(result(measures, server=None)) == f"{words} The server's /metrics could not be read."


def test_all_figures_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(as_json(MIXED), allow_nan=False))
    assert (found["schema"], found["model"], found["began"]) == (2, "llama", "2026-11-22T03:04:05+00:00")
    assert found["conclusion"] == conclusion(MIXED)
    assert (found["options"]["host"], found["options"]["num_users"]) == ("http://localhost:8000", 8)
    assert (found["all"]["requests"], found["all"]["goodput"]["good"]) == (30, 14)
    assert {name: summary["succeeded"] for name, summary in found["scenarios"].items()} == {"chat": 14, "edit": 14}
    assert (found["server"]["acceptance_length"], found["server"]["agrees_with_clients"]) == (3.5, False)
    assert {"vllm-spec-plugin", "locust"} & found["client"]["versions"].keys()
    assert as_json(dataclasses.replace(MIXED, server=None))["server"] is None


def test_key_figures_are_those_of_all_requests() -> None:
    found = {figure.name: (figure.value, figure.note) for figure in key_figures(MIXED)}
    assert found["Requests"] == ("30", "3.15 succeeded per second")
    assert found["Failed"] == ("2", "6.7%")
    assert found["TTFT, p50"] == ("300 ms", "p95 400 ms")
    assert found["Goodput"] == ("46.7%", "1.57 per second with TTFT ≤ 300 ms, TPOT ≤ 60.0 ms")
    assert found["Acceptance rate"] == ("62.5%", "3.50 tokens per step with a draft")
    names = {figure.name for figure in key_figures(dataclasses.replace(MIXED, slo=None, server=None))}
    assert names == {"Requests", "Failed", "Output tokens/s", "TTFT, p50", "TPOT, p50"}


def test_every_scenario_has_a_row_below_all() -> None:
    table = by_scenario(MIXED)
    assert [name for name, _ in table.rows] == ["all", "chat", "edit"]
    assert {len(cells) for _, cells in table.rows} == {len(table.columns)} == {sum(span for _, span in table.groups)}
    assert dict(table.rows)["chat"] == ["16", "2", *["200"] * 3, *["50.0"] * 3, *["1,200"] * 3, "100", "1.91", "17.5"]
    assert dict(by_scenario(result({"chat": [failed(0)]})).rows)["chat"] == ["1", "1", *["-"] * 12]


def test_failures_and_counts() -> None:
    kinds = [failed(0, ErrorKind.CUT, ""), failed(1, ErrorKind.HTTP_5XX, "first"), failed(2, ErrorKind.HTTP_5XX, "x")]
    assert failures(result({"chat": kinds})) == [("http_5xx", "2", "66.7%", "first"), ("cut", "1", "33.3%", "-")]
    found = {name: texts for name, *texts in counted(MIXED)}
    assert found["output tokens"] == ["588", "5,100"]
    assert found["acceptance rate"] == ["", "62.5%"]
    assert counted(dataclasses.replace(MIXED, server=None)) == []


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


def test_times_durations_shares_and_counts() -> None:
    times = [time_text(seconds) for seconds in (0, 0.00123, 1.234, 9.99, 10, 123.4, None)]
    assert times == ["0 ms", "1.23 ms", "1,234 ms", "9,990 ms", "10.0 s", "123 s", "-"]
    assert (unit_for([0.2, None]).name, unit_for([0.2, 12.0]).name) == ("ms", "s")
    assert [duration(seconds) for seconds in (59.72, 119.9, 725, 28800)] == [
        "59.7 s",
        "2 min 0 s",
        "12 min 5 s",
        "8 h 0 min",
    ]
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


def test_plots_show_scenarios_limits_and_failures() -> None:
    distribution, latencies, load, chunks = Figure(), Figure(), Figure(), Figure()
    draw_distribution(distribution, MIXED, LATENCIES[0])
    (axes,) = distribution.axes
    assert axes.get_legend_handles_labels()[1] == ["chat", "edit", "SLO 300 ms"]
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    draw_latencies(latencies, MIXED, LATENCIES)
    assert [axes.get_ylabel() for axes in latencies.axes] == ["TTFT, ms", "TPOT, ms", "end to end, ms"]
    assert latencies.axes[0].get_legend_handles_labels()[1] == ["chat", "edit", "p50", "p95", "SLO"]
    assert latencies.axes[2].get_legend_handles_labels()[1] == ["chat", "edit", "p50", "p95", "failed"]
    draw_load(load, MIXED)
    assert load.axes[0].get_legend_handles_labels()[1] == ["requests in flight", "users"]
    draw_chunks(chunks, MIXED)
    heights = [bar.get_height() for bar in chunks.axes[0].patches if isinstance(bar, Rectangle)]
    assert heights == pytest.approx([1 / 11, 10 / 11])


def test_of_many_requests_only_some_are_drawn() -> None:
    figure = Figure()
    draw_latencies(figure, result({"chat": [answered(0.001 * i) for i in range(5000)]}), LATENCIES[:1])
    assert len(np.asarray(figure.axes[0].lines[0].get_xydata())) == 1667


def test_the_page_begins_with_the_conclusion_and_needs_nothing_else() -> None:
    text = page(MIXED)
    found = Page(text)
    assert found.texts[1:3] == ["Load test of llama", conclusion(MIXED)]
    assert {"300 ms", "46.7%", "66.1", "17.5", "5,100", "full", "output tokens/s", "chat"} <= set(found.texts)
    assert not {"run-time", "prompts"} & set(found.texts)
    assert found.count("svg") == 6
    assert found.count("script") == found.count("link") == found.count("img") == 0
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert not re.search(r"@import|url\((?!#)", text)


def test_hostile_text_stays_text() -> None:
    measures = {HOSTILE: [answered(0.0), failed(1.0, message=HOSTILE)], FORMULA: [answered(0.5)]}
    found = Page(page(result(measures, model=HOSTILE, host=HOSTILE, options={"prompts": HOSTILE})))
    assert found.count("script") == 0
    assert f"Load test of {HOSTILE}" in found.texts


@pytest.mark.parametrize(
    ("measures", "num_plots"),
    [({}, 0), ({"chat": [failed(0.0)]}, 1), ({"chat": [answered(0.0, tokens=1)]}, 5)],
    ids=["none", "failed", "one"],
)
def test_tests_that_show_little_have_a_page_too(measures: Any, num_plots: int) -> None:
    assert Page(page(result(measures, server=None))).count("svg") == num_plots
