"""Figures and pictures of the docs are those of the committed results."""

import re
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import figures
from benchmarks.figures import HASH_KEY, PAGES, RESULTS, markers, parse, picture_of, rendered

MARKERS = [marker for page in PAGES for marker in markers(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_figures_of_its_results(page: Path) -> None:
    assert markers(page)
    assert page.read_text() == rendered(page), "run: make figures"


def test_another_figure_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(
            re.sub(r'("rounds": \d+)|": 1', lambda found: found[1] or '": 3', path.read_text())
        )
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert all(page.read_text() != rendered(page) for page in PAGES)


def test_pictures_are_of_their_results() -> None:
    shown = [parse(marker)[1] for marker in MARKERS if marker.split()[0] == "picture"]
    assert {picture_of(one) for one in shown} <= set(RESULTS.glob("*.png"))
    for one in shown:
        with Image.open(picture_of(one)) as image:
            assert image.text[HASH_KEY] == figures.hash_of(one.names), "run: make figures"  # type: ignore[attr-defined]


def test_no_results_or_pictures_are_left_over() -> None:
    used = {name for marker in MARKERS for name in parse(marker)[1].names}
    assert {path.name for path in RESULTS.glob("*.json")} == used
    pictures = {picture_of(parse(marker)[1]).name for marker in MARKERS if marker.split()[0] == "picture"}
    assert {path.name for path in RESULTS.glob("*.png")} == pictures


def test_results_are_dated_and_of_a_commit() -> None:
    for path in RESULTS.glob("*.json"):
        [run] = figures.Figures([path.name]).runs
        assert run["provenance"]["date"]
        commit = run["provenance"]["commit"]
        # The table of certificates shows it.
        is_clean = run.get("report") == "certify" or not commit.endswith("+")
        assert is_clean, f"{path.name}: measured with changes that are not committed"
