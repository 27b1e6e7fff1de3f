"""Whole runs on a tiny model: what they write, and going on after an interrupt."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from tests.unit.tools.training.runs import SIZES, assert_same_weights, corpus, interrupted_after, watched
from tests.unit.tools.training.tiny import saved_model
from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.report.provenance import command_line
from vllm_spec_tools.training import loop
from vllm_spec_tools.training.options import Options
from vllm_spec_tools.training.report import HeadMeasurement
from vllm_spec_tools.training.train import train_heads

pytestmark = pytest.mark.usefixtures("in_little_time")
WEIGHTS = "medusa_lm_head.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def options(tmp_path: Path, model: str) -> Options:
    return Options(model, [str(corpus(tmp_path / "data"))], heads=2, steps=24, **SIZES)


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than training."""
    monkeypatch.setattr(loop, "write", lambda *_, **files: None)


def train(options: Options, out: Path, *, restart: bool = False) -> list[HeadMeasurement]:
    return train_heads(options, out, Console(file=io.StringIO()), restart=restart)


def refusal_of(options: Options, out: Path) -> str:
    with pytest.raises(UserError) as caught:
        train(options, out)
    assert "allowed: " in str(caught.value)
    return str(caught.value)


def test_a_run_leaves_heads_their_figures_and_curves_and_nothing_else(options: Options, tmp_path: Path) -> None:
    out, said = tmp_path / "out", io.StringIO()
    measurements = train_heads(options, out, Console(file=said))
    assert "training\nmeasuring on held-out text\n" in said.getvalue()
    assert sorted(path.name for path in out.iterdir()) == ["config.json", WEIGHTS, "training.png"]
    assert (out / "training.png").read_bytes().startswith(b"\x89PNG")
    config = read_heads_config(str(out))
    assert (config.num_heads, config.num_layers, config.hidden_size, config.vocab_size) == (2, 1, 16, 30)
    assert config.base_model == options.model
    assert config.accuracy is not None
    assert config.paths is not None
    assert set(config.paths) == {"greedy", "sampled", "drawn"}
    shares = [config.paths[use][0,] for use in ("greedy", "sampled")]
    # Both kinds of text were measured at about as many positions.
    assert min(shares) <= config.accuracy[0][0] <= max(shares)
    assert 0 < config.paths["drawn"][0,] <= 1
    names = ["data", "own text at temperature 0", "own text at temperature 1"]
    assert [each.name for each in measurements] == names
    assert [each.tokens_per_step is None for each in measurements] == [True, False, False]
    assert measurements[1].next_token[0] == 1.0
    provenance = json.loads((out / "config.json").read_text())["provenance"]
    assert "vllm-spec train-medusa --model" in command_line(provenance)
    assert "--self-distill-temperature 0.0 --self-distill-temperature 1.0" in command_line(provenance)
    assert set(provenance["training_tokens"]) == set(names)
    assert len(provenance["data_sha256"]) == 64


@pytest.mark.usefixtures("no_curves")
def test_an_interrupted_run_goes_on_to_exactly_the_same_weights(options: Options, tmp_path: Path) -> None:
    """Interrupted after the first step, in the middle, and after the last."""
    whole = train(options, tmp_path / "whole")
    for steps in (1, 7, 24):
        out = tmp_path / f"parts {steps}"
        with interrupted_after(steps):
            train(options, out)
        assert not (out / WEIGHTS).exists()
        seen: list[int] = []
        with watched(lambda training, seen=seen: seen.append(training.step)):  # type: ignore[misc]
            assert train(options, out) == whole
        assert seen == list(range(steps + 1, 25))
        assert_same_weights(tmp_path / "whole" / WEIGHTS, out / WEIGHTS)


@pytest.mark.usefixtures("no_curves")
def test_an_interrupted_run_goes_on_only_with_its_own_arguments_and_checkpoint(
    options: Options, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with interrupted_after(3):
        train(options, out)
    assert "with other arguments: steps 24 there and 30 here" in refusal_of(replace(options, steps=30), out)
    (out / "checkpoint" / "state.pt").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"state\.pt: cannot be read: .*; start again with --restart"):
        train(options, out)
    (tmp_path / "data" / "0.txt").write_text("something else")
    assert "sha256 of the data" in refusal_of(options, out)
    train(options, out, restart=True)
    assert not (out / "checkpoint").exists()


@pytest.mark.usefixtures("no_curves")
def test_given_heads_are_measured_and_written_in_this_layout(options: Options, tmp_path: Path) -> None:
    train(options, tmp_path / "out")
    given = tmp_path / "given"
    given.mkdir()
    torch.save(load_file(tmp_path / "out" / WEIGHTS), given / "medusa_lm_head.pt")
    (given / "config.json").write_text('{"medusa_num_heads": 2, "medusa_num_layers": 1}')
    measured = train(replace(options, heads=None, start=str(given), steps=0), tmp_path / "measured")
    assert [len(each.top) for each in measured] == [2, 2, 2]
    before, after = (
        load_heads(str(folder), 16, 30, torch.float32, "cpu").parameters() for folder in (given, tmp_path / "measured")
    )
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    one = train(replace(options, heads=1, start=str(given), steps=0), tmp_path / "one")
    assert [len(each.top) for each in one] == [1, 1, 1]


@pytest.mark.usefixtures("no_curves")
def test_only_saved_heads_are_measured(options: Options, tmp_path: Path) -> None:
    """The figures are those of the rounded weights: measuring the file again gives the same."""
    options = replace(options, dtype="bfloat16", self_distill=0)
    first = train(options, tmp_path / "first")
    again = train(replace(options, start=str(tmp_path / "first"), steps=0), tmp_path / "again")
    assert first == again


@pytest.mark.usefixtures("no_curves")
def test_what_does_not_fit_is_refused(options: Options, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert "to 64, which is all" in refusal_of(replace(options, max_length=65), out)
    assert "allowed: from 4" in refusal_of(replace(options, max_length=3), out)
    train(replace(options, steps=1), out)
    assert "holds heads already" in refusal_of(options, out)
    assert "--heads: got 3, and" in refusal_of(replace(options, heads=3, start=str(out)), other)
    for path in (tmp_path / "data").iterdir():
        path.write_text(path.name[:2])
    assert "no text of 4 tokens" in refusal_of(options, other)
