"""Whole runs on a tiny model: what they write, and going on after an interrupt."""

import functools
import io
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from tests.unit.tools.training.tiny import LETTERS, saved_model
from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.report import Report
from vllm_spec_plugin.tools.report.provenance import command_line
from vllm_spec_plugin.tools.training import distill, loop, stages
from vllm_spec_plugin.tools.training import train as train_module
from vllm_spec_plugin.tools.training.backbone import load_backbone
from vllm_spec_plugin.tools.training.options import Options
from vllm_spec_plugin.tools.training.report import Measurement
from vllm_spec_plugin.tools.training.train import train_heads

WEIGHTS = "medusa_lm_head.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model")


def write_history(report: Report, **files: Path | None) -> None:
    assert files["png"] is not None
    if report.charts:
        files["png"].write_text(json.dumps(report.data["history"]))


# Nothing writes to a target: it is loaded once.
load_once = functools.cache(load_backbone)


@pytest.fixture(autouse=True)
def _in_little_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches of own text, few measurements on the way, and figures in place of drawn curves."""
    monkeypatch.setitem(distill._ROWS, "cpu", 8)
    monkeypatch.setattr(stages, "MEASUREMENTS", 4)
    monkeypatch.setattr(train_module, "load_backbone", load_once)
    if "curves" not in request.fixturenames:
        monkeypatch.setattr(train_module, "write", write_history)


@pytest.fixture
def curves() -> None:
    """For tests that have them drawn."""


@pytest.fixture
def options(tmp_path: Path, model: str) -> Options:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(20):
        (data / f"{number}.txt").write_text(LETTERS[number:] + LETTERS[:number] + LETTERS)
    return Options(
        model,
        (str(data),),
        heads=2,
        steps=24,
        batch_tokens=512,
        max_length=32,
        self_distill=160,
        dtype="float32",
        learning_rate=0.01,
    )


def train(options: Options, out: Path, *, restart: bool = False) -> list[Measurement]:
    return train_heads(options, out, Console(file=io.StringIO()), restart=restart)


def refusal_of(options: Options, out: Path) -> str:
    with pytest.raises(UserError) as caught:
        train(options, out)
    assert "allowed: " in str(caught.value)
    return str(caught.value)


def train_and_interrupt(options: Options, out: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Sends this process a Ctrl-C in the middle of a step."""
    advance = loop.Training.advance

    def advance_and_interrupt(training: loop.Training) -> float:
        loss = advance(training)
        if training.step == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return loss

    with monkeypatch.context() as context:
        context.setattr(loop.Training, "advance", advance_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(options, out)


@pytest.mark.usefixtures("curves")
def test_a_run_leaves_heads_their_figures_and_curves_and_nothing_else(options: Options, tmp_path: Path) -> None:
    measurements = train(options, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", WEIGHTS, "training.png"]
    assert (tmp_path / "out" / "training.png").read_bytes().startswith(b"\x89PNG")
    config = read_heads_config(str(tmp_path / "out"))
    assert (config.num_heads, config.num_layers, config.hidden_size, config.vocab_size) == (2, 1, 16, 30)
    assert config.accuracy is not None
    assert config.paths is not None
    assert config.base_model == options.model
    assert config.measured_on is not None
    assert "temperature 0 and own text at temperature 1" in config.measured_on
    assert set(config.paths) == {"greedy", "sampled", "drawn"}
    shares = [config.paths[use][0,] for use in ("greedy", "sampled")]
    # Both kinds of text were measured at about as many positions.
    assert min(shares) <= config.accuracy[0][0] <= max(shares)
    assert 0 < config.paths["drawn"][0,] <= 1
    names = ["data", "own text at temperature 0", "own text at temperature 1"]
    assert [each.name for each in measurements] == names
    assert [each.tokens_per_step is None for each in measurements] == [True, False, False]
    assert measurements[1].next_token[0] == 1.0
    provenance = json.loads((tmp_path / "out" / "config.json").read_text())["provenance"]
    assert provenance["options"]["self-distill-temperature"] == [0.0, 1.0]
    assert "--self-distill-temperature 0.0 --self-distill-temperature 1.0" in command_line(provenance)
    assert "vllm-spec train-medusa --model" in command_line(provenance)
    assert set(provenance["training_tokens"]) == set(names)
    assert len(provenance["data_sha256"]) == 64
    assert provenance["versions"].keys() >= {"vllm_spec_plugin", "python", "torch", "transformers", "safetensors"}


def test_an_interrupted_run_goes_on_to_exactly_the_same_weights(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after the first step, in the middle, and after the last."""
    train(options, tmp_path / "whole")
    for steps in (1, 7, 24):
        out = tmp_path / f"parts {steps}"
        train_and_interrupt(options, out, monkeypatch, steps)
        assert not (out / WEIGHTS).exists()
        train(options, out)
        whole, parts = (load_file(folder / WEIGHTS) for folder in (tmp_path / "whole", out))
        assert all(torch.equal(whole[name], parts[name]) for name in whole | parts)
        figures = [json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "whole", out)]
        for config in figures:
            del config["provenance"]
        assert figures[0] == figures[1]
        histories = [(folder / "training.png").read_text() for folder in (tmp_path / "whole", out)]
        assert histories[0] == histories[1]


def test_other_arguments_do_not_go_on_with_an_interrupted_run(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    train_and_interrupt(options, out, monkeypatch, 3)
    assert "with other arguments: steps 24 there and 30 here" in refusal_of(replace(options, steps=30), out)
    (tmp_path / "data" / "0.txt").write_text("something else")
    assert "sha256 of the data" in refusal_of(options, out)
    train(options, out, restart=True)
    assert not (out / "checkpoint").exists()


def test_heads_that_are_there_are_not_replaced_unless_asked(options: Options, tmp_path: Path) -> None:
    options = replace(options, steps=1)
    train(options, tmp_path / "out")
    assert "holds heads already" in refusal_of(options, tmp_path / "out")
    train(options, tmp_path / "out", restart=True)


def test_given_heads_are_measured_and_written_in_this_layout(options: Options, tmp_path: Path) -> None:
    train(options, tmp_path / "out")
    given = tmp_path / "given"
    given.mkdir()
    torch.save(load_file(tmp_path / "out" / WEIGHTS), given / "medusa_lm_head.pt")
    (given / "config.json").write_text('{"medusa_num_heads": 2, "medusa_num_layers": 1}')
    measured = train(replace(options, heads=None, start=str(given), steps=0), tmp_path / "measured")
    assert [len(each.top) for each in measured] == [2, 2, 2]
    assert not (tmp_path / "measured" / "training.png").exists()
    sizes = (16, 30, torch.float32, "cpu")
    for before, after in zip(
        load_heads(str(given), *sizes).parameters(),
        load_heads(str(tmp_path / "measured"), *sizes).parameters(),
        strict=True,
    ):
        assert torch.equal(before, after)
    assert read_heads_config(str(tmp_path / "measured")).accuracy is not None
    one = train(replace(options, heads=1, start=str(given), steps=0), tmp_path / "one")
    assert [len(each.top) for each in one] == [1, 1, 1]


def test_only_saved_heads_are_measured(options: Options, tmp_path: Path) -> None:
    """The figures are those of the rounded weights: measuring the file again gives the same."""
    options = replace(options, dtype="bfloat16", self_distill=0)
    first = train(options, tmp_path / "first")
    again = train(replace(options, start=str(tmp_path / "first"), steps=0), tmp_path / "again")
    assert first == again


def test_more_heads_than_are_given_are_refused(options: Options, tmp_path: Path) -> None:
    train(replace(options, steps=1), tmp_path / "out")
    more = replace(options, heads=3, start=str(tmp_path / "out"))
    assert "--heads: got 3, and" in refusal_of(more, tmp_path / "more")
    assert "no such" not in refusal_of(replace(options, start=str(tmp_path)), tmp_path / "more")


def test_lengths_and_texts_that_do_not_fit_are_refused(options: Options, tmp_path: Path) -> None:
    assert "allowed: up to 64" in refusal_of(replace(options, max_length=65), tmp_path / "out")
    assert "allowed: from 4" in refusal_of(replace(options, max_length=3), tmp_path / "out")
    for path in (tmp_path / "data").iterdir():
        path.write_text(path.name[:2])
    assert "no text of 4 tokens" in refusal_of(options, tmp_path / "out")


def test_a_broken_checkpoint_is_named(options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_and_interrupt(options, tmp_path / "out", monkeypatch, 3)
    (tmp_path / "out" / "checkpoint" / "state.pt").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"state\.pt: cannot be read: .*; begin anew with --restart"):
        train(options, tmp_path / "out")
