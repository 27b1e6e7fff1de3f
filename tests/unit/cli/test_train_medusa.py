"""`vllm-spec train-medusa`: its options, what it prints, and where its errors go."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.training.tiny import LETTERS, saved_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def given(tmp_path: Path, model: str) -> list[str | Path]:
    (tmp_path / "data.txt").write_text(LETTERS * 30)
    return ["--model", model, "--data", tmp_path / "data.txt", "--out", tmp_path / "out", "--max-length", "32"]


def test_heads_are_trained_and_their_accuracies_printed(
    given: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_spec_plugin.tools.training import distill

    monkeypatch.setitem(distill._ROWS, "cpu", 8)
    options = "--heads 2 --steps 3 --self-distill 0.1k --self-distill-temperature 0.5"
    result = run("train-medusa", *given, *options.split())
    assert (result.exit_code, result.stderr) == (0, "")
    for shown in ("Held out, data", "own text at temperature 0.5", "head 2, token t+3"):
        assert shown in result.stdout
    assert "".join(result.stdout.splitlines()).endswith(f"written to {tmp_path / 'out'}")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["medusa_num_heads"] == 2
    assert config["provenance"]["options"]["self-distill"] == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--data /no/such", "no such file or folder"),
        ("--data stdlib", "got other data beside it"),
        ("--model /no/such", "cannot be loaded"),
        ("--from /no/such", "there is no folder '/no/such'"),
        ("--max-length 65", "--max-length: got 65; allowed: up to 64"),
        ("--steps 0", "--steps: got 0; allowed: from 1"),
        ("--out file/out", "file/out/checkpoint: Not a directory"),
        ("--heads 0", "--heads"),
        ("--labels firm", "--labels"),
        ("--self-distill many", "--self-distill"),
        ("--dtype x", "--dtype"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    given: list[str | Path], change: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert_mistake(run("train-medusa", *given, *change.split()), message)
    assert not (tmp_path / "out").exists()


def test_an_interrupt_says_how_to_go_on(given: list[str | Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_spec_plugin.tools.training import train

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_heads", interrupted)
    result = run("train-medusa", *given)
    assert (result.exit_code, result.stderr) == (130, "interrupted; repeat the same command to resume\n")
