"""Figures and pictures of the docs are those of the committed results."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks import figures
from benchmarks.figures import HASH_KEY, PAGES, RESULTS, markers, parse, picture_of, rendered, svg_of
from benchmarks.token_picture import token_picture
from vllm_spec_plugin.config import load_config, parse_config
from vllm_spec_plugin.config.former import without_former

MARKERS = [marker for page in PAGES for marker in markers(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_figures_of_its_results(page: Path) -> None:
    assert markers(page)
    assert page.read_text() == rendered(page), "run: make figures"


def test_pictures_are_of_their_results() -> None:
    shown = [parse(marker)[1] for marker in MARKERS if marker.split()[0] == "picture"]
    assert {picture_of(one) for one in shown} <= set(RESULTS.glob("*.png"))
    for one in shown:
        with Image.open(picture_of(one)) as image:
            assert image.text[HASH_KEY] == figures.hash_of(one.names), "run: make figures"  # type: ignore[attr-defined]


def test_pictures_of_tokens_are_of_their_results() -> None:
    shown = [parse(marker)[1] for marker in MARKERS if marker.split()[0] == "tokens"]
    assert {svg_of(one) for one in shown} == set(RESULTS.glob("*.svg"))
    for one in shown:
        assert svg_of(one).read_text() == token_picture(one.runs[0]["tokens"]), "run: make figures"


def test_no_results_or_pictures_are_left_over() -> None:
    used = {name for marker in MARKERS for name in parse(marker)[1].names}
    assert {str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*.json")} == used
    pictures = {picture_of(parse(marker)[1]).name for marker in MARKERS if marker.split()[0] == "picture"}
    assert {path.name for path in RESULTS.glob("*.png")} == pictures


def test_results_are_dated_and_of_a_commit() -> None:
    for path in RESULTS.rglob("*.json"):
        [run] = figures.Figures([str(path.relative_to(RESULTS))]).runs
        assert run["provenance"]["date"]
        commit = run["provenance"]["commit"]
        # The table of certificates shows it.
        is_clean = run.get("report") == "certify" or not commit.endswith("+")
        assert is_clean, f"{path.name}: measured with changes that are not committed"


def results(rounds: int, schema: int = 5, table: str = "vLLM's ngram, K = 4, less in larger batches") -> dict[str, Any]:
    """Results of no speculation, an arm that gains, one within noise, and two arms of vLLM's own speculation."""
    speeds = {
        "no speculation": (10.0, 11.0, 12.0),
        "gains.yaml": (20.0, 23.0, 24.0),
        "noisy.yaml": (9.0, 11.0, 14.0),
        "vLLM's ngram, K = 4": (11.0, 12.0, 13.0),
        table: (16.0, 17.6, 19.0),
    }
    cell = {"workload": "edit", "streams": 1, "rounds": rounds, "draft_tokens": 5}
    return {
        "schema": schema,
        "arms": list(speeds),
        "cells": [{**cell, "arm": arm, "tokens_per_second": {"median": own[1]}} for arm, own in speeds.items()],
        "measurements": [
            {"arm": arm, "workload": "edit", "level": 1, "round": i, "metric": "tokens_per_second", "value": own[i]}
            for arm, own in speeds.items()
            for i in range(rounds)
        ],
    }


def test_ratios_are_paired_by_round_and_noise_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(results(3)))
    kind, found = parse("ratio a.json arms=gains.yaml|noisy.yaml")
    assert figures.SHOW[kind](found).splitlines()[2:] == [
        "| no speculation | 11 tokens/s |",
        "| gains.yaml | 2.00 (2.00-2.09) |",
        "| noisy.yaml | 1.00 (0.90-1.17), within noise |",
    ]
    kind, found = parse("over_vllm a.json")
    assert figures.SHOW[kind](found).splitlines()[::2] == [
        "| tokens/s over vLLM's fastest arm, 3 rounds | 1 stream |",
        "| gains.yaml | 1.26 (1.25-1.31) |",
    ]
    (tmp_path / "a.json").write_text(json.dumps(results(1)))
    kind, found = parse("ratio a.json arms=gains.yaml")
    assert figures.SHOW[kind](found).splitlines()[0] == (
        "| tokens/s over no speculation, 1 round, noise unknown | 1 stream |"
    )


def test_configurations_of_a_real_models_tables_are_in_the_repository() -> None:
    folder, found = figures.ROOT / "benchmarks/configs/smollm2", set()
    for path in RESULTS.glob("real_model/*.json"):
        for arm, recorded in json.loads(path.read_text())["provenance"]["arms"].items():
            if arm.endswith(".yaml"):
                found.add(arm)
                own = load_config(folder / arm).model_dump(mode="json")
                as_now, _ = without_former(recorded["speculation"])
                # Keys that are newer than the results have their defaults.
                then = parse_config(as_now, arm).model_dump(mode="json")
                assert {key: own[key] for key in as_now} == {key: then[key] for key in as_now}, (path, arm)
    assert found == {path.name for path in folder.glob("*.yaml")}
