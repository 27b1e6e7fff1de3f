"""`vllm-spec bench replay` and `bench record`: tables, and what does not go."""

from pathlib import Path

import pytest

from tests.unit.cli.running import run
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
    result = run(
        "bench", "replay", recorded, *SIZES, "--workload", "easy", "--ablate", "--without", "skills of requests"
    )
    assert result.exit_code == 0, result.output
    assert "skills of requests" in result.stdout
    assert "easy, 2" in result.stdout
