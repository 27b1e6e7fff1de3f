"""`vllm-spec train-medusa` and `train-eagle3`: their options, what they print, and where their errors go."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.running import run
from tests.unit.tools.training.tiny import LETTERS, WritingEngine, saved_model

KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "train-medusa": (
        "--heads 2 --steps 3 --self-distill 0.1k --self-distill-temperature 0.5",
        ("Held out, data", "own text at temperature 0.5", "head 2, token t+3"),
        {"medusa_num_heads": 2},
    ),
    "train-eagle3": (
        "--draft-tokens 2 --steps 2 --dtype float32",
        ("Held out, data", "draft token 2, token t+3", "Accepted by position, data: "),
        {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model", num_hidden_layers=3)


@pytest.fixture
def given(tmp_path: Path, model: str) -> list[str | Path]:
    (tmp_path / "data.txt").write_text(LETTERS * 30)
    return ["--model", model, "--data", tmp_path / "data.txt", "--out", tmp_path / "out", "--max-length", "32"]


@pytest.mark.parametrize("command", KINDS)
def test_heads_are_trained_and_their_figures_printed(
    given: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from vllm_spec_tools.training import loop, rows

    monkeypatch.setitem(rows._BATCH_ROWS, "cpu", 8)
    monkeypatch.setattr(loop, "TargetEngine", WritingEngine)
    options, shown, config = KINDS[command]
    result = run(command, *given, *options.split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert [part for part in shown if part not in result.stdout] == []
    assert "".join(result.stdout.splitlines()).endswith(f"written to {tmp_path / 'out'}")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written | config == written
    assert written["provenance"]["options"]["steps"] == int(options.split("--steps ")[1][0])


def test_an_interrupt_says_how_to_go_on(given: list[str | Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_spec_tools.training import medusa

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(medusa, "train_heads", interrupted)
    result = run("train-medusa", *given)
    assert (result.exit_code, result.stderr) == (130, "interrupted; repeat the same command to resume\n")
