"""`vllm-spec train-medusa`: its options, what it prints, and where its errors go."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.running import run
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
    result = run(
        "train-medusa",
        *given,
        "--heads",
        "2",
        "--steps",
        "3",
        "--self-distill",
        "0.1k",
        "--self-distill-temperature",
        "0.5",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Held out, data" in result.stdout
    assert "own text at temperature 0.5" in result.stdout
    assert "head 2, token t+3" in result.stdout
    assert "".join(result.stdout.splitlines()).endswith(f"written to {tmp_path / 'out'}")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["medusa_num_heads"] == 2
    assert config["provenance"]["options"]["self-distill"] == 100


def test_plain_arguments_are_enough(given: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_spec_plugin.tools.training import train

    seen = []
    monkeypatch.setattr(
        train, "train_heads", lambda options, out, console, restart, files: seen.append((options, restart))
    )
    assert run("train-medusa", *given).exit_code == 0
    ((options, restart),) = seen
    assert (options.heads, options.layers, options.labels, options.dtype) == (None, 1, "soft", "float16")
    assert (options.temperatures, options.start, restart) == ((0.0, 1.0), None, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--data", "/no/such"], "no such file or folder"),
        (["--data", "stdlib"], "got other data beside it"),
        (["--model", "/no/such"], "cannot be loaded"),
        (["--from", "/no/such"], "there is no folder '/no/such'"),
        (["--max-length", "65"], "--max-length: got 65; allowed: up to 64"),
    ],
)
def test_an_error_is_one_line(given: list[str | Path], change: list[str], message: str, tmp_path: Path) -> None:
    result = run("train-medusa", *given, *change)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_nothing_to_do_is_refused(given: list[str | Path]) -> None:
    result = run("train-medusa", *given, "--steps", "0")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --steps: got 0; allowed: from 1")


@pytest.mark.parametrize(
    "option", [["--heads", "0"], ["--labels", "firm"], ["--self-distill", "many"], ["--dtype", "x"]]
)
def test_values_out_of_range_are_refused(given: list[str | Path], option: list[str]) -> None:
    assert run("train-medusa", *given, *option).exit_code == 2


def test_an_interrupt_says_how_to_go_on(given: list[str | Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_spec_plugin.tools.training import train

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_heads", interrupted)
    result = run("train-medusa", *given)
    assert (result.exit_code, result.stderr) == (130, "interrupted; repeat the same command to resume\n")


def test_a_folder_that_cannot_be_written_is_named(given: list[str | Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("train-medusa", *given, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'file' / 'out' / 'checkpoint'}: Not a directory\n"
