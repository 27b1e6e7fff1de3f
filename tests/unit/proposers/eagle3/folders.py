"""Folders of tiny random EAGLE-3 heads in both layouts."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vllm_spec_plugin.proposers.eagle3.layout import read_layout

HIDDEN, VOCABULARY, DRAFT_VOCABULARY = 16, 30, 12
LAYER = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


def original_config(**more: Any) -> dict[str, Any]:
    """A config.json as SafeAILab/EAGLE writes them."""
    return LAYER | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCABULARY} | more


def speculators_config(**more: Any) -> dict[str, Any]:
    """A config.json as vllm-project/speculators writes them."""
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT_VOCABULARY,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "transformer_layer_config": dict(LAYER),
        "speculators_config": {"verifier": {"name_or_path": "models/target"}},
    } | more


def random_state(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors of a head, by the names of the config's layout."""
    generator = torch.Generator().manual_seed(seed)
    head = read_layout(config, "config.json")
    state = {name: torch.randn(shape, generator=generator) for name, shape in head.tensor_shapes().items()}
    if head.draft_vocab_size != head.vocab_size:
        ids = torch.randperm(head.vocab_size, generator=generator)[: head.draft_vocab_size].sort().values
        state["d2t"] = ids - torch.arange(head.draft_vocab_size)
        state["t2d"] = torch.zeros(head.vocab_size, dtype=torch.bool)
        state["t2d"][ids] = True
    if head.layout == "original":
        state = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in state.items()}
    return state


def write(folder: Path, config: dict[str, Any], state: dict[str, torch.Tensor] | None = None) -> str:
    """Writes a folder with `state`, by default a random one, and returns its name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_state(config) if state is None else state, folder / "model.safetensors")
    return str(folder)
