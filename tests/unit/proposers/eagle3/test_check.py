"""Heads that fit a target, and every way in which they do not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proposers.eagle3.folders import LAYER, original_config, speculators_config, write
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import ConfigError

START = "spec.yaml: proposer.model: "


def target(folder: Path, **changes: Any) -> Target:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LAYER | {"num_hidden_layers": 6} | changes))
    return Target(ModelSource(str(folder)))


def refusal_of(model: str, served: Target) -> str:
    with pytest.raises(ConfigError) as caught:
        check_head(served, model, "spec.yaml")
    message = str(caught.value)
    assert message.startswith(START)
    assert "allowed: " in message
    return message


def test_a_head_of_the_targets_sizes_fits(tmp_path: Path) -> None:
    head = write(tmp_path / "head", speculators_config())
    assert check_head(target(tmp_path / "target"), head, "spec.yaml") == []
    assert check_head(None, head, "spec.yaml") == []
    assert check_head(None, "nobody/not-downloaded", "spec.yaml") == []
    with pytest.raises(ConfigError, match=r"there is no folder '\./nothing'"):
        check_head(None, "./nothing", "spec.yaml")


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"vocab_size": 31}, "a vocabulary of 30, the target"),
        ({"hidden_size": 24, "head_dim": 4}, "hidden states of size 16, the target"),
        ({"num_hidden_layers": 4}, "takes hidden states after layer 5, the target"),
    ],
)
def test_a_head_for_another_target_is_refused(tmp_path: Path, changes: dict[str, Any], mistake: str) -> None:
    head = write(tmp_path / "head", speculators_config())
    assert mistake in refusal_of(head, target(tmp_path / "target", **changes))


def test_a_head_without_layer_ids_needs_three_default_layers(tmp_path: Path) -> None:
    head = write(tmp_path / "head", original_config())
    assert check_head(target(tmp_path / "deep", num_hidden_layers=8), head, "spec.yaml") == []
    message = refusal_of(head, target(tmp_path / "shallow", num_hidden_layers=4))
    assert "the default ones of the target" in message
    assert "with 4 layers are [1, 2]; allowed: 3 layers" in message


def test_a_head_of_another_size_needs_an_embedding_of_its_own(tmp_path: Path) -> None:
    layer = LAYER | {"hidden_size": 8}
    head = write(tmp_path / "head", speculators_config(transformer_layer_config=layer, target_hidden_size=16))
    assert "has no embedding of its own and a hidden size of 8" in refusal_of(head, target(tmp_path / "target"))


@pytest.mark.parametrize(("size", "allowed"), [(2, ""), (4, ""), (5, "1, 2, 4"), (8, "1, 2, 4")])
def test_several_devices_must_divide_the_head(tmp_path: Path, size: int, allowed: str) -> None:
    """It has 4 heads, 2 KV heads and a feed-forward size of 20."""
    head = write(tmp_path / "head", speculators_config())
    served = replace(target(tmp_path / "target"), tensor_parallel_size=size)
    if allowed:
        assert f"over tensor_parallel_size {size}; allowed: {allowed}, or another head" in refusal_of(head, served)
    else:
        assert Eagle3Config(method="eagle3", model=head).check(served, 4, "spec.yaml") == []


@pytest.mark.parametrize("config", [original_config(), speculators_config()], ids=["original", "speculators"])
def test_a_context_shorter_than_the_servers_is_said(config: dict[str, Any], tmp_path: Path) -> None:
    head = write(tmp_path / "head", config)
    served = target(tmp_path / "target", num_hidden_layers=8, max_position_embeddings=2048)
    said = f"{START}the context of '{head}' is 128 tokens, requests may have {{}}: drafts end at token 128"
    assert check_head(served, head, "spec.yaml") == [said.format("2,048")]
    assert check_head(replace(served, max_model_len=129), head, "spec.yaml") == [said.format("129")]
    assert check_head(replace(served, max_model_len=128), head, "spec.yaml") == []
