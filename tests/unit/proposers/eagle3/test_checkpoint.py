"""Both layouts of heads, every way in which one is broken, and targets that one does not fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.proposers.eagle3.folders import (
    DRAFT_VOCABULARY,
    HIDDEN,
    LAYER,
    VOCABULARY,
    original_config,
    random_state,
    speculators_config,
    write,
)
from tests.unit.proposers.refusals import refusal
from vllm_spec_plugin.proposers.eagle3.check import check_head
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.section import Target

Change = dict[str, Any]
START = "spec.yaml: proposer.model: "


def test_both_layouts_of_one_head_are_read_alike(tmp_path: Path) -> None:
    state = random_state(speculators_config())
    theirs = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in state.items()}
    one = read_head(write(tmp_path / "speculators", speculators_config(), state))
    other = read_head(write(tmp_path / "original", original_config(), theirs))
    assert (one.config.layout, other.config.layout) == ("speculators", "original")
    for head in (one, other):
        assert (head.config.hidden_size, head.config.target_hidden_size) == (HIDDEN, HIDDEN)
        assert (head.config.vocab_size, head.config.draft_vocab_size) == (VOCABULARY, DRAFT_VOCABULARY)
        assert (head.config.head_dim, head.has_embedding) == (HIDDEN // 4, False)
        assert head.target_ids is not None
        assert torch.equal(head.target_ids, state["t2d"].nonzero().flatten())
        weights = head.weights()
        assert weights.keys() == state.keys() - {"d2t", "t2d"}
        assert all(torch.equal(weights[name], state[name]) for name in weights)
    assert (one.config.aux_layers, other.config.aux_layers) == ((1, 3, 5), None)
    # vLLM's defaults of each layout.
    assert (one.config.norm_before_residual, other.config.norm_before_residual) == (True, False)
    assert (one.config.base_model, other.config.base_model) == ("models/target", None)


def test_options_of_both_layouts_are_read(tmp_path: Path) -> None:
    config = speculators_config(norm_before_fc=True, fc_norm=True, norm_output=True, target_hidden_size=24)
    state = random_state(config) | {"embed_tokens.weight": torch.zeros(VOCABULARY, HIDDEN)}
    head = read_head(write(tmp_path / "norms", config, state))
    assert (head.config.norm_before_fc, head.config.fc_norm, head.config.norm_output) == (True, True, True)
    assert head.has_embedding
    assert head.weights()["fc_norm.2.weight"].shape == (24,)
    assert read_head(write(tmp_path / "whole", speculators_config(draft_vocab_size=VOCABULARY))).target_ids is None
    section = original_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2]})
    assert read_head(write(tmp_path / "layers", section)).config.aux_layers_of(6) == (0, 2)
    # vLLM's defaults.
    plain = read_head(write(tmp_path / "plain", original_config())).config
    assert (plain.aux_layers_of(32), plain.aux_layers_of(4)) == ((2, 16, 29), (1, 2))


def unreadable(folder: str | Path) -> str:
    return refusal(read_head, str(folder), kind=UnreadableError)


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"speculators_model_type": "peagle"}, "speculators_model_type: got the text 'peagle'"),
        ({"transformer_layer_config": None}, "transformer_layer_config: got nothing"),
        ({"transformer_layer_config": LAYER | {"model_type": "qwen3"}}, "model_type: got the text 'qwen3'"),
        ({"transformer_layer_config": LAYER | {"attention_bias": True}}, "attention_bias: got true"),
        ({"transformer_layer_config": LAYER | {"hidden_size": 0}}, "transformer_layer_config.hidden_size: got 0"),
        ({"draft_vocab_size": "all"}, "draft_vocab_size: got the text 'all'"),
        ({"eagle_aux_hidden_state_layer_ids": [3, 1, 5]}, "eagle_aux_hidden_state_layer_ids: got a list"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 1, 5]}, "ascending order, each once"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state: got false"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, change: Change, mistake: str) -> None:
    write(tmp_path, speculators_config())
    (tmp_path / "config.json").write_text(json.dumps(speculators_config() | change))
    message = unreadable(tmp_path)
    assert message.startswith(f"'{tmp_path / 'config.json'}': ")
    assert mistake in message


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("fc.weight", None),
        ("layers.0.hidden_norm.weight", None),
        ("fc.weight", torch.zeros(HIDDEN, 2 * HIDDEN)),
        ("embed_tokens.weight", torch.zeros(VOCABULARY, 8)),
        ("layers.1.mlp.up_proj.weight", torch.zeros(1)),
        ("d2t", None),
        ("d2t", torch.zeros(5, dtype=torch.int64)),
        ("d2t", torch.zeros(DRAFT_VOCABULARY)),
        ("d2t", torch.full((DRAFT_VOCABULARY,), 19)),
        ("d2t", -torch.arange(DRAFT_VOCABULARY) - 1),
        ("d2t", -torch.arange(DRAFT_VOCABULARY)),
        ("t2d", torch.zeros(VOCABULARY, dtype=torch.bool)),
    ],
)
def test_a_tensor_that_cannot_be_used_is_named(tmp_path: Path, name: str, tensor: torch.Tensor | None) -> None:
    state = random_state(speculators_config()) | {name: tensor}
    write(tmp_path, speculators_config(), {name: tensor for name, tensor in state.items() if tensor is not None})
    assert f"'{name}'" in unreadable(tmp_path)


def test_a_folder_without_a_head_is_refused(tmp_path: Path) -> None:
    assert "has no config.json" in unreadable(tmp_path)
    for text, mistake in (("[", "not JSON"), ("[]", "got a list"), (json.dumps(original_config()), "has no weights")):
        (tmp_path / "config.json").write_text(text)
        assert mistake in unreadable(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"whatever")
    assert "pytorch_model.bin, a torch file, which may run code" in unreadable(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    assert "cannot be read" in unreadable(tmp_path)


def target(folder: Path, **changes: Any) -> Target:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LAYER | {"num_hidden_layers": 6} | changes))
    return Target(ModelSource(str(folder)))


@pytest.fixture
def head(tmp_path: Path) -> str:
    return write(tmp_path / "head", speculators_config())


def refusal_of(model: str, served: Target | None) -> str:
    return refusal(check_head, served, model, "spec.yaml", start=START)


def test_a_head_of_the_targets_sizes_fits(tmp_path: Path, head: str) -> None:
    assert check_head(target(tmp_path / "target"), head, "spec.yaml") == []
    for model in (head, "nobody/not-downloaded"):
        assert check_head(None, model, "spec.yaml") == []
    assert "there is no folder './nothing'" in refusal_of("./nothing", None)


@pytest.mark.parametrize(
    ("config", "changes", "mistake"),
    [
        ({}, {"vocab_size": 31}, "a vocabulary of 30, the target"),
        ({}, {"hidden_size": 24, "head_dim": 4}, "hidden states of size 16, the target"),
        ({}, {"num_hidden_layers": 4}, "takes hidden states after layer 5, the target"),
        ({"eagle_aux_hidden_state_layer_ids": None}, {"num_hidden_layers": 4}, "with 4 layers are [1, 2]"),
        (
            {"transformer_layer_config": LAYER | {"hidden_size": 8}, "target_hidden_size": 16},
            {},
            "has no embedding of its own and a hidden size of 8",
        ),
    ],
)
def test_a_head_for_another_target_is_refused(tmp_path: Path, config: Change, changes: Change, mistake: str) -> None:
    whole = {name: value for name, value in speculators_config(**config).items() if value is not None}
    assert mistake in refusal_of(write(tmp_path / "head", whole), target(tmp_path / "target", **changes))


@pytest.mark.parametrize(("size", "allowed"), [(2, ""), (4, ""), (5, "1, 2, 4"), (8, "1, 2, 4")])
def test_several_devices_must_divide_the_head(tmp_path: Path, head: str, size: int, allowed: str) -> None:
    """It has 4 heads, 2 KV heads and a feed-forward size of 20."""
    served = replace(target(tmp_path / "target"), tensor_parallel_size=size)
    if allowed:
        assert f"over tensor_parallel_size {size}; allowed: {allowed}, or another head" in refusal_of(head, served)
    else:
        assert Eagle3Config(method="eagle3", model=head).check(served, 4, "spec.yaml") == []


def test_a_context_shorter_than_the_servers_and_a_target_that_cannot_be_read_are_warnings(
    tmp_path: Path, head: str
) -> None:
    served = target(tmp_path / "target", num_hidden_layers=8, max_position_embeddings=2048)
    for length, said in ((None, "2,048"), (129, "129")):
        (warning,) = check_head(replace(served, max_model_len=length), head, "spec.yaml")
        assert warning.startswith(f"{START}the context of '{head}' is 128 tokens, requests may have {said}: drafts end")
    assert check_head(replace(served, max_model_len=128), head, "spec.yaml") == []
    (warning,) = check_head(target(tmp_path / "none", model_type="nonesuch"), head, "spec.yaml")
    assert warning.startswith(f"{START}not compared with the target ")
