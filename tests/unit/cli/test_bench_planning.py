"""`vllm-spec bench planning`: it runs, tells all parts, and says what does not go."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import assert_mistake, run


def test_all_parts_are_told_and_written_for_one_proposer_and_for_two(tmp_path: Path) -> None:
    path = tmp_path / "planning.json"
    sizes = ("--requests", "3", "--requests", "1", "--requests", "3")
    result = run("bench", "planning", *sizes, "--tokens", "2", "--steps", "4", "--rounds", "3", "--json", path)
    assert result.exit_code == 0, result.output
    for part in ("plan", "verified+advance", "measured", "total", "drafted", "ngram, draft_model"):
        assert part in result.stdout
    report = json.loads(path.read_text())
    assert (report["tokens"], report["steps"], report["rounds"], report["seed"]) == (2, 4, 3, 0)
    results = report["results"]
    assert [(case["proposers"], case["requests"]) for case in results] == [
        (proposers, requests) for proposers in (["draft_model"], ["ngram", "draft_model"]) for requests in (1, 3)
    ]
    for case in results:
        parts = [case[part] for part in ("plan_us", "outcomes_us", "measured_us")]
        assert min(parts) > 0
        assert case["total_us"] >= max(parts)
        assert 0 < case["draft_length"] <= 2
        assert f"{case['total_us']:.1f}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "65"], "--tokens"),
        (["--json", "nothing/here.json"], "--json nothing/here.json: there is no folder"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("bench", "planning", *arguments)
    assert_mistake(result, message)
