"""The page: what is in it, and that nothing else is needed."""

import re

import pytest

from loadtests.report.page import page
from tests.unit.loadtests.report.markup import Page
from tests.unit.loadtests.report.results import MIXED, answered, failed, result

FORMULA = "$\\frac{$"
HOSTILE = "<script src=http://evil.example/a.js></script>\"'&$\\frac{$ </text></style>"


@pytest.fixture(scope="module")
def text() -> str:
    return page(MIXED)


def test_it_has_the_figures_and_what_they_are_of(text: str) -> None:
    texts = Page(text).texts
    assert {"Load test of llama", "http://localhost:8000, 2026-11-22 03:04:05 UTC, 8.90 s"} <= set(texts)
    # Key figures, a cell of a table, the server's tokens, an error's message; an axis and a scenario of a plot.
    assert {"300 ms", "46.7%", "66.1", "17.5", "5,100", "full", "output tokens/s", "chat"} <= set(texts)
    assert [texts[texts.index(name) + 1] for name in ("num-users", "temperature")] == ["8", "0.7"]
    assert not {"run-time", "prompts"} & set(texts)


def test_it_is_well_formed_and_needs_nothing_else(text: str) -> None:
    found = Page(text)
    assert found.names("svg") == 6
    assert found.names("script") == found.names("link") == found.names("img") == 0
    assert found.references
    assert all(re.fullmatch(r"#[\w-]+", reference) for reference in found.references)
    ids = {attributes["id"] for _, attributes in found.elements if "id" in attributes}
    assert {reference.removeprefix("#") for reference in found.references} <= ids
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    assert not re.search(r"@import|url\((?!#)", text)
    # Names of XML's, which nobody loads, and what was tested.
    known = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://localhost:8000"}
    assert set(re.findall(r"https?://[^\"'\s<,]+", text)) == known


def test_colours_that_differ_between_light_and_dark_are_the_pages(text: str) -> None:
    plots = text[text.index("<svg") :]
    assert set(re.findall(r"(?<=: )var\(--[a-z]+\)", plots)) == {
        f"var(--{name})" for name in ("ink", "muted", "line", "paper")
    }
    assert not re.search("#10111|#13141|#16171|#191a1", plots)


def test_hostile_text_stays_text() -> None:
    hostile = result(
        {HOSTILE: [answered(0.0), failed(1.0, message=HOSTILE)], FORMULA: [answered(0.5)]},
        model=HOSTILE,
        host=HOSTILE,
        options={"prompts": HOSTILE},
    )
    text = page(hostile)
    found = Page(text)
    assert found.names("script") == 0
    assert f"Load test of {HOSTILE}" in found.texts
    # As the model in both titles, and as host, option, scenario in the table, and message.
    assert sum(HOSTILE in one for one in found.texts) == 6
    # Scenarios are in four plots as well, long names shortened.
    assert (found.texts.count(HOSTILE[:23] + "…"), found.texts.count(FORMULA)) == (4, 5)


@pytest.mark.parametrize(
    ("measures", "words", "num_plots"),
    [
        ({}, "No request came to its end, so there is nothing to tell.", 0),
        ({"chat": [failed(0.0), failed(1.0)]}, "All 2 requests failed.", 1),
        ({"chat": [answered(0.0, tokens=1)]}, None, 5),
    ],
    ids=["none", "failed", "one"],
)
def test_tests_that_show_little_have_a_page_too(measures, words: str | None, num_plots: int) -> None:
    found = Page(page(result(measures, server=None)))
    assert found.names("svg") == num_plots
    assert (words in found.texts) == (words is not None)
    assert "Its /metrics could not be read before and after the test." in found.texts
