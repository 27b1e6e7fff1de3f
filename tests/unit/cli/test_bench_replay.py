"""`vllm-spec bench replay` and `bench record`: tables, and what does not go."""

from pathlib import Path

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.bench.replay.cases import recording

SIZES = ("--levels", "2", "--tokens", "30", "--request-tokens", "30", "--seeds", "1")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    recording().write(path)
    return path


def test_rates_are_shown_and_written(recorded: Path, tmp_path: Path) -> None:
    markdown = tmp_path / "table.md"
    arguments = ("replay", recorded, *SIZES, "--workload", "easy", "--workload", "switching", "--markdown", markdown)
    first, again = run("bench", *arguments), run("bench", *arguments)
    assert first.exit_code == 0, first.output
    assert first.stdout == again.stdout
    assert "tiny: ngram, draft_model" in first.stdout
    lines = markdown.read_text().splitlines()
    names = [line.split(" | ")[0] for line in lines if line.startswith("| ")]
    assert names == ["| streams", "| easy, 2", "| switching, 2"]


def test_one_mechanism_can_be_switched_off(recorded: Path) -> None:
    result = run("bench", "replay", recorded, *SIZES, "--workload", "easy", "--ablate", "--without", "trials")
    assert result.exit_code == 0, result.output
    assert "trials" in result.stdout
    assert "easy, 2" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "nothing.json"], "nothing.json: cannot be read"),
        (["replay", "--workload", "nice"], "--workload: got 'nice'"),
        (["replay", "--without", "luck"], "--without: got 'luck'"),
        (["record", "nothing/here.json"], "OUT nothing/here.json: there is no folder"),
        (["record", "a.json", "--outcomes-of", "b.json"], "b.json: cannot be read"),
        (["record", "a.json", "--lengths", "9"], "--lengths: got '9'"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("bench", *arguments)
    assert_mistake(result, message)
