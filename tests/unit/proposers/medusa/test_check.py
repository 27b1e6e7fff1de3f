"""Heads that fit a target, and every way in which they do not."""

import json
from pathlib import Path

import pytest
import torch

from tests.unit.proposers.medusa.folders import original_config, random_state, write
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.draft_model.compatibility import ModelSource
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import save_heads
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.schema.errors import ConfigError

TARGET = ModelSource(str(model_path("target")))
START = "conf/spec.yaml: proposer.model: "


def heads_folder(folder: Path, hidden: int = 256, vocabulary: int = 2048) -> str:
    save_heads(MedusaHeads(hidden, vocabulary, 2, 1), folder, {}, torch.float16)
    return str(folder)


def refusal_of(model: str, num_heads: int | None = None, target: ModelSource = TARGET) -> str:
    with pytest.raises(ConfigError) as caught:
        check_heads(target, model, num_heads, "conf/spec.yaml")
    message = str(caught.value)
    assert message.startswith(START)
    assert "allowed: " in message
    return message.removeprefix(START)


def test_heads_of_the_targets_sizes_fit(tmp_path: Path) -> None:
    assert check_heads(TARGET, heads_folder(tmp_path), 2, "conf/spec.yaml") == []


def test_a_target_that_cannot_be_read_is_a_warning_and_the_number_of_heads_is_still_checked(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    heads = write(tmp_path / "heads", random_state(), original_config())
    (warning,) = check_heads(ModelSource(str(target)), heads, 3, "conf/spec.yaml")
    assert warning.startswith(f"{START}not compared with the target '{target}'")
    assert "has 3 heads, drafts of 4 tokens need 4" in refusal_of(heads, 4, ModelSource(str(target)))
