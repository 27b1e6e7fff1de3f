"""The reports of a load test: conclusion, JSON, tables, plots, page."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from loadtests.report.conclusion import conclusion, counts_agree
from loadtests.report.page import page
from loadtests.report.plots import percentiles, spread
from loadtests.report.result import as_json
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
