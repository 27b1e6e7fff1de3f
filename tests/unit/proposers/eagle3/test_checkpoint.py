"""Both layouts of heads, and every way in which one is broken."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

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
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.model_files import UnreadableError

Change = dict[str, Any]


def refusal_of(folder: str | Path) -> str:
    with pytest.raises(UnreadableError) as caught:
        read_head(str(folder))
    message = str(caught.value)
    assert message.isprintable()
    assert "allowed: " in message
    return message


def test_both_layouts_of_one_head_are_read_alike(tmp_path: Path) -> None:
    state = random_state(speculators_config())
    theirs = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in state.items()}
    one = read_head(write(tmp_path / "speculators", speculators_config(), state))
    other = read_head(write(tmp_path / "original", original_config(), theirs))
    assert (one.config.layout, other.config.layout) == ("speculators", "original")
    for head in (one, other):
        assert (head.config.hidden_size, head.config.target_hidden_size) == (HIDDEN, HIDDEN)
        assert (head.config.vocab_size, head.config.draft_vocab_size) == (VOCABULARY, DRAFT_VOCABULARY)
        assert head.config.head_dim == HIDDEN // 4
        assert not head.has_embedding
        assert head.target_ids is not None
        assert torch.equal(head.target_ids, state["t2d"].nonzero().flatten())
        weights = head.weights()
        assert weights.keys() == state.keys() - {"d2t", "t2d"}
        assert all(torch.equal(weights[name], state[name]) for name in weights)
    assert (one.config.aux_layers, other.config.aux_layers) == ((1, 3, 5), None)
    # vLLM's defaults of each layout.
    assert (one.config.norm_before_residual, other.config.norm_before_residual) == (True, False)
    assert (one.config.base_model, other.config.base_model) == ("models/target", None)


def test_norms_and_an_embedding_of_its_own_are_read(tmp_path: Path) -> None:
    config = speculators_config(norm_before_fc=True, fc_norm=True, norm_output=True, target_hidden_size=24)
    state = random_state(config) | {"embed_tokens.weight": torch.zeros(VOCABULARY, HIDDEN)}
    head = read_head(write(tmp_path, config, state))
    assert head.config.norm_before_fc
    assert head.config.fc_norm
    assert head.config.norm_output
    assert head.has_embedding
    assert head.weights()["fc_norm.2.weight"].shape == (24,)


def test_the_originals_layer_ids_are_read_from_its_section(tmp_path: Path) -> None:
    config = original_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2]})
    head = read_head(write(tmp_path, config))
    assert head.config.aux_layers_of(6) == (0, 2)


def test_default_layers_are_those_of_vllm(tmp_path: Path) -> None:
    config = read_head(write(tmp_path, original_config())).config
    assert config.aux_layers_of(32) == (2, 16, 29)
    assert config.aux_layers_of(4) == (1, 2)


def test_weights_in_several_files_are_read(tmp_path: Path) -> None:
    state = random_state(original_config())
    write(tmp_path, original_config(), {})
    (tmp_path / "model.safetensors").unlink()
    parts = {"a.safetensors": sorted(state)[::2], "b.safetensors": sorted(state)[1::2]}
    for file, names in parts.items():
        save_file({name: state[name] for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert len(read_head(str(tmp_path)).weights()) == len(state) - 2
    (tmp_path / "b.safetensors").unlink()
    assert "b.safetensors', which is not there" in refusal_of(tmp_path)


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"speculators_model_type": "peagle"}, "speculators_model_type: got the text 'peagle'; allowed: eagle3"),
        ({"transformer_layer_config": None}, "transformer_layer_config: got nothing (null)"),
        ({"transformer_layer_config": LAYER | {"model_type": "qwen3"}}, "model_type: got the text 'qwen3'"),
        ({"transformer_layer_config": LAYER | {"attention_bias": True}}, "attention_bias: got true; allowed: false"),
        ({"transformer_layer_config": LAYER | {"hidden_size": 0}}, "transformer_layer_config.hidden_size: got 0"),
        ({"transformer_layer_config": LAYER | {"hidden_size": None}}, "hidden_size: got nothing"),
        ({"draft_vocab_size": "all"}, "draft_vocab_size: got the text 'all'; allowed: a whole number from 1"),
        ({"eagle_aux_hidden_state_layer_ids": [3, 1, 5]}, "eagle_aux_hidden_state_layer_ids: got a list"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 1, 5]}, "ascending order, each once"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state: got false; allowed: true"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, change: Change, mistake: str) -> None:
    write(tmp_path, speculators_config())
    (tmp_path / "config.json").write_text(json.dumps(speculators_config() | change))
    message = refusal_of(tmp_path)
    assert message.startswith(f"'{tmp_path / 'config.json'}': ")
    assert mistake in message


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"fc.weight": None}, "tensor 'fc.weight' is missing"),
        ({"layers.0.hidden_norm.weight": None}, "tensor 'layers.0.hidden_norm.weight' is missing"),
        ({"fc.weight": torch.zeros(HIDDEN, 2 * HIDDEN)}, "has the shape [16, 32]; allowed: [16, 48]"),
        ({"embed_tokens.weight": torch.zeros(VOCABULARY, 8)}, "has the shape [30, 8]; allowed: [30, 16]"),
        ({"layers.1.mlp.up_proj.weight": torch.zeros(1)}, "unknown tensor 'layers.1.mlp.up_proj.weight'"),
        ({"d2t": None}, "tensor 'd2t' is missing; allowed: with a draft_vocab_size of 12 the map to the 30"),
        ({"d2t": torch.zeros(5, dtype=torch.int64)}, "has the shape [5]; allowed: [12]"),
        ({"d2t": torch.zeros(DRAFT_VOCABULARY)}, "has the type torch.float32; allowed: whole numbers"),
        ({"d2t": torch.full((DRAFT_VOCABULARY,), 19)}, "maps the head's token 11 to 30; allowed: offsets that lead to"),
        ({"d2t": -torch.arange(DRAFT_VOCABULARY) - 1}, "maps the head's token 0 to -1"),
        ({"d2t": -torch.arange(DRAFT_VOCABULARY)}, "maps two tokens to one"),
        ({"t2d": torch.zeros(VOCABULARY, dtype=torch.bool)}, "and 't2d' name different tokens"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_named(tmp_path: Path, change: Change, mistake: str) -> None:
    state = random_state(speculators_config()) | change
    write(tmp_path, speculators_config(), {name: tensor for name, tensor in state.items() if tensor is not None})
    assert mistake in refusal_of(tmp_path)


def test_a_torch_file_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path, original_config())
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"whatever")
    assert "pytorch_model.bin, a torch file, which may run code" in refusal_of(tmp_path)


def test_a_folder_without_a_head_is_refused(tmp_path: Path) -> None:
    assert "has no config.json" in refusal_of(tmp_path)
    (tmp_path / "config.json").write_text("[")
    assert "not JSON" in refusal_of(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "got a list; allowed: an object" in refusal_of(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(original_config()))
    assert "has no weights" in refusal_of(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    assert "cannot be read" in refusal_of(tmp_path)
