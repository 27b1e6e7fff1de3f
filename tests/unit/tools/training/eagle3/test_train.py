"""Whole runs on a tiny model: what they write, and going on after an interrupt."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.tools.training.runs import SIZES, assert_same_weights, corpus, interrupted_after
from tests.unit.tools.training.tiny import saved_model
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.model_files import WEIGHTS
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.eagle3.train import train_head
from vllm_spec_tools.training.options import Eagle3Options

pytestmark = pytest.mark.usefixtures("in_little_time")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("models") / "model", num_hidden_layers=4)


@pytest.fixture
def options(tmp_path: Path, model: str) -> Eagle3Options:
    return Eagle3Options(model, [str(corpus(tmp_path / "data"))], draft_tokens=2, steps=12, **SIZES)


def train(options: Eagle3Options, out: Path, *, restart: bool = False) -> dict[str, dict[str, Any]]:
    return train_head(options, out, Console(file=io.StringIO()), restart=restart)


def refusal_of(options: Eagle3Options, out: Path) -> str:
    with pytest.raises(UserError) as caught:
        train(options, out)
    assert "allowed: " in str(caught.value)
    return str(caught.value)


def test_a_run_leaves_a_head_that_fits_its_figures_and_curves(options: Eagle3Options, tmp_path: Path) -> None:
    figures = train(replace(options, draft_vocab=20), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", WEIGHTS, "training.png"]
    assert (tmp_path / "out" / "training.png").read_bytes().startswith(b"\x89PNG")
    assert check_head(Target(ModelSource(options.model)), str(tmp_path / "out"), "spec.yaml") == []
    head = read_head(str(tmp_path / "out"))
    assert (head.config.layout, head.config.draft_vocab_size, head.config.aux_layers) == ("speculators", 20, (1, 2, 3))
    assert head.config.base_model == options.model
    assert head.target_ids is not None
    assert {2 + place for place in range(26)} > set(head.target_ids.tolist()) - {0, 1}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["held_out"] == figures
    assert config["provenance"]["program"] == "vllm-spec train-eagle3"
    assert config["provenance"]["options"]["aux-layers"] == [1, 2, 3]
    assert list(figures) == ["data", "own text at temperature 0", "own text at temperature 1"]
    for found in figures.values():
        assert len(found["acceptance_by_position"]) == len(found["overlap"]) == len(found["top"]) == 2


def test_training_raises_acceptance(options: Eagle3Options, tmp_path: Path) -> None:
    before = train(replace(options, steps=1, learning_rate=1e-9), tmp_path / "before")
    after = train(replace(options, steps=60), tmp_path / "after")
    for kind, found in before.items():
        assert max(after[kind]["loss"]) < min(found["loss"])
        assert after[kind]["overlap"][0] > found["overlap"][0]


def test_an_interrupted_run_goes_on_to_exactly_the_same_weights(options: Eagle3Options, tmp_path: Path) -> None:
    whole = train(options, tmp_path / "whole")
    with interrupted_after(5):
        train(options, tmp_path / "parts")
    assert not (tmp_path / "parts" / WEIGHTS).exists()
    assert "steps 12 there and 13 here" in refusal_of(replace(options, steps=13), tmp_path / "parts")
    assert train(options, tmp_path / "parts") == whole
    assert_same_weights(tmp_path / "whole" / WEIGHTS, tmp_path / "parts" / WEIGHTS)
    assert "holds heads already" in refusal_of(options, tmp_path / "parts")


def test_options_that_do_not_fit_the_target_are_refused(options: Eagle3Options, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "--draft-vocab: got 31; allowed: up to 30" in refusal_of(replace(options, draft_vocab=31), out)
    assert "--aux-layers: got 1 2 4; allowed: 3 layers" in refusal_of(replace(options, aux_layers=(1, 2, 4)), out)
    assert "--aux-layers: got 2 1 3" in refusal_of(replace(options, aux_layers=(2, 1, 3)), out)
    assert "--max-length: got 3; allowed: from 4" in refusal_of(replace(options, max_length=3), out)
    assert "to 64, which is all" in refusal_of(replace(options, max_length=65), out)
    assert not out.exists()
