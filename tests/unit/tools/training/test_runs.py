"""Whole runs of both kinds on a tiny model: what they write, and going on after an interrupt."""

import contextlib
import functools
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from tests.unit.tools.training.tiny import LETTERS, WritingEngine, saved_model
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training import eagle3, loop, medusa, rows
from vllm_spec_tools.training.backbone import load_backbone
from vllm_spec_tools.training.options import Eagle3Options, Options, RunOptions

NAMES = ["data", "own text at temperature 0", "own text at temperature 1"]
WEIGHTS = {Options: "medusa_lm_head.safetensors", Eagle3Options: "model.safetensors"}
SIZES: dict[str, Any] = {
    "batch_tokens": 512,
    "max_length": 32,
    "self_distill": 160,
    "dtype": "float32",
    "learning_rate": 0.01,
}


def corpus(folder: Path) -> Path:
    """Writes 20 texts to a new folder and returns it."""
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text(LETTERS[number:] + LETTERS[:number] + LETTERS)
    return folder


@contextlib.contextmanager
def watched(look: Callable[[loop.Training], object]) -> Iterator[None]:
    """Calls `look` after each step."""
    advance = loop.Training.advance

    def advance_and_look(training: loop.Training) -> float:
        loss = advance(training)
        look(training)
        return loss

    with pytest.MonkeyPatch.context() as context:
        context.setattr(loop.Training, "advance", advance_and_look)
        yield


# Nothing writes to a target: it is loaded once.
load_once = functools.cache(load_backbone)


@pytest.fixture(autouse=True)
def in_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches of own text."""
    monkeypatch.setitem(rows._BATCH_ROWS, "cpu", 8)
    monkeypatch.setattr(loop, "TargetEngine", WritingEngine)
    for module in (medusa, eagle3):
        monkeypatch.setattr(module, "load_backbone", load_once)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model", num_hidden_layers=4)


@pytest.fixture
def heads(tmp_path: Path, model: str) -> Options:
    return Options(model, [str(corpus(tmp_path / "data"))], heads=2, steps=24, **SIZES)


@pytest.fixture
def head(tmp_path: Path, model: str) -> Eagle3Options:
    return Eagle3Options(model, [str(corpus(tmp_path / "data"))], draft_tokens=2, steps=24, **SIZES)


@pytest.fixture(params=["heads", "head"])
def options(request: pytest.FixtureRequest) -> Any:
    """Both kinds."""
    return request.getfixturevalue(request.param)


def train(options: RunOptions, out: Path, said: io.StringIO | None = None, **more: Any) -> dict[str, dict[str, Any]]:
    runs: dict[Any, Any] = {Options: medusa.train_heads, Eagle3Options: eagle3.train_head}
    found: dict[str, dict[str, Any]] = runs[type(options)](options, out, Console(file=said or io.StringIO()), **more)
    return found


@contextlib.contextmanager
def interrupted_after(step: int, number: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """Sends this process a signal in the middle of a step, and expects it to come out of the block."""

    def interrupt(training: loop.Training) -> None:
        if training.step == step:
            os.kill(os.getpid(), number)

    with watched(interrupt), pytest.raises(KeyboardInterrupt):
        yield


def refused(words: str, options: RunOptions, out: Path) -> None:
    with pytest.raises(UserError) as caught:
        train(options, out)
    assert words in str(caught.value)


def test_a_run_leaves_heads_and_their_figures_and_nothing_else(options: Any, tmp_path: Path) -> None:
    out, said = tmp_path / "out", io.StringIO()
    figures = train(options, out, said)
    assert "tokens per target pass with a chain of all" in said.getvalue()
    assert sorted(path.name for path in out.iterdir()) == sorted(["config.json", WEIGHTS[type(options)]])
    config = json.loads((out / "config.json").read_text())
    assert config["held_out"] == figures
    assert list(figures) == NAMES
    assert ["tokens_per_step" in found for found in figures.values()] == [False, True, True]
    assert all(len(found["top"]) == len(found["loss"]) == 2 for found in figures.values())
    assert figures[NAMES[1]]["next_token_top"][0] == 1.0
    provenance = config["provenance"]
    assert provenance["options"]["temperatures"] == [0.0, 1.0]
    assert set(provenance["training_tokens"]) == set(NAMES)
    assert len(provenance["data_sha256"]) == 64


def test_medusa_heads_have_paths_of_what_will_be_served(heads: Options, tmp_path: Path) -> None:
    train(heads, tmp_path / "out")
    config = read_heads_config(str(tmp_path / "out"))
    assert (config.num_heads, config.num_layers, config.hidden_size, config.vocab_size) == (2, 1, 16, 30)
    assert config.base_model == heads.model
    assert config.accuracy is not None
    assert config.paths is not None
    assert set(config.paths) == {"greedy", "sampled", "drawn"}
    shares = [config.paths[use][0,] for use in ("greedy", "sampled")]
    # Both kinds of text were measured at about as many positions.
    assert min(shares) <= config.accuracy[0][0] <= max(shares)
    assert 0 < config.paths["drawn"][0,] <= 1


def test_an_eagle3_head_fits_its_target(head: Eagle3Options, tmp_path: Path) -> None:
    figures = train(replace(head, draft_vocab=20), tmp_path / "out")
    assert check_head(Target(ModelSource(head.model)), str(tmp_path / "out"), "spec.yaml") == []
    found = read_head(str(tmp_path / "out"))
    sizes = (found.config.layout, found.config.draft_vocab_size, found.config.aux_layers, found.config.base_model)
    assert sizes == ("speculators", 20, (1, 2, 3), head.model)
    assert found.target_ids is not None
    assert {2 + place for place in range(26)} > set(found.target_ids.tolist()) - {0, 1}
    assert all(len(one["acceptance_by_position"]) == len(one["overlap"]) == 2 for one in figures.values())


def test_training_raises_acceptance(head: Eagle3Options, tmp_path: Path) -> None:
    before = train(replace(head, steps=1, learning_rate=1e-9), tmp_path / "before")
    after = train(replace(head, steps=60), tmp_path / "after")
    for kind, found in before.items():
        assert max(after[kind]["loss"]) < min(found["loss"])
        assert after[kind]["overlap"][0] > found["overlap"][0]


def test_an_interrupted_run_goes_on_to_exactly_the_same_weights(options: Any, tmp_path: Path) -> None:
    """Interrupted after the first step, in the middle, and after the last."""
    whole, weights = train(options, tmp_path / "whole"), WEIGHTS[type(options)]
    for steps in (1, 7, 24):
        out = tmp_path / f"parts {steps}"
        with interrupted_after(steps):
            train(options, out)
        assert not (out / weights).exists()
        seen: list[int] = []
        with watched(lambda training: seen.append(training.step)):  # noqa: B023
            assert train(options, out) == whole
        assert seen == list(range(steps + 1, 25))
        ours, theirs = load_file(tmp_path / "whole" / weights), load_file(out / weights)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


def test_an_interrupted_run_goes_on_only_with_its_own_arguments_and_checkpoint(heads: Options, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with interrupted_after(3, signal.SIGTERM):
        train(heads, out)
    refused("with other arguments: steps 24 there and 30 here", replace(heads, steps=30), out)
    (out / "checkpoint" / "state.pt").write_bytes(b"broken")
    refused("start again with --restart", heads, out)
    (tmp_path / "data" / "0.txt").write_text("something else")
    refused("sha256 of the data", heads, out)
    train(heads, out, restart=True)
    assert not (out / "checkpoint").exists()


def test_given_heads_are_measured_as_saved_and_written_in_this_layout(heads: Options, tmp_path: Path) -> None:
    """The figures are those of the rounded weights: measuring the file again gives the same."""
    rounded = replace(heads, dtype="bfloat16", steps=3)
    first = train(rounded, tmp_path / "out")
    assert train(replace(rounded, start=str(tmp_path / "out"), steps=0), tmp_path / "again") == first
    given = tmp_path / "given"
    given.mkdir()
    torch.save(load_file(tmp_path / "out" / WEIGHTS[Options]), given / "medusa_lm_head.pt")
    (given / "config.json").write_text('{"medusa_num_heads": 2, "medusa_num_layers": 1}')
    for number, options in ((2, replace(heads, heads=None)), (1, replace(heads, heads=1))):
        measured = train(replace(options, start=str(given), steps=0), tmp_path / f"measured {number}")
        assert [len(found["top"]) for found in measured.values()] == [number] * 3
    before, after = (
        load_heads(str(folder), 16, 30, torch.float32, "cpu").parameters()
        for folder in (given, tmp_path / "measured 2")
    )
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_what_does_not_fit_is_refused_before_anything_is_written(options: Any, tmp_path: Path) -> None:
    new, out = tmp_path / "new", tmp_path / "out"
    refused("--max-length: got 65; allowed: from 4, for 2 tokens ahead, to 64", replace(options, max_length=65), new)
    refused("--max-length: got 3; allowed: from 4", replace(options, max_length=3), new)
    if isinstance(options, Eagle3Options):
        refused("--draft-vocab: got 31; allowed: up to 30", replace(options, draft_vocab=31), new)
    assert not new.exists()
    train(replace(options, steps=1), out)
    refused("holds heads already; allowed: another folder", options, out)
    if isinstance(options, Options):
        refused("--heads: got 3, and", replace(options, heads=3, start=str(out)), new)
    for path in (tmp_path / "data").iterdir():
        path.write_text(path.name[:2])
    refused("no text of 4 tokens", options, new)
