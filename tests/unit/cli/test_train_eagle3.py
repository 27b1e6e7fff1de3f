"""`vllm-spec train-eagle3`: its options, what it prints, and where its errors go."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import run
from tests.unit.tools.training.tiny import LETTERS, saved_model


@pytest.fixture
def given(tmp_path: Path) -> list[str | Path]:
    model = saved_model(tmp_path / "model", num_hidden_layers=3)
    (tmp_path / "data.txt").write_text(LETTERS * 30)
    return ["--model", model, "--data", tmp_path / "data.txt", "--out", tmp_path / "out", "--max-length", "32"]


def test_a_head_is_trained_and_its_acceptance_printed(given: list[str | Path], tmp_path: Path) -> None:
    result = run("train-eagle3", *given, "--draft-tokens", "2", "--steps", "2", "--aux-layers", "0", "1", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Held out, data" in result.stdout
    assert "draft token 2, token t+3" in result.stdout
    assert "Accepted by position, data: " in result.stdout
    assert "".join(result.stdout.splitlines()).endswith(f"written to {tmp_path / 'out'}")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]


def test_an_option_that_does_not_fit_is_one_line_on_stderr(given: list[str | Path]) -> None:
    result = run("train-eagle3", *given, "--draft-vocab", "31")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "--draft-vocab: got 31; allowed: up to 30" in result.stderr
