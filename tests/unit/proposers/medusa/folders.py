"""Folders of heads for tests, and what a plain implementation makes of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, silu

HIDDEN, VOCABULARY = 12, 30


def random_state(num_heads: int = 3, num_layers: int = 1, prefix: str = "", seed: int = 0) -> dict[str, torch.Tensor]:
    """A state dict of random heads, by the original's names."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for head in range(num_heads):
        for layer in range(num_layers):
            state[f"{prefix}{head}.{layer}.linear.weight"] = torch.randn(HIDDEN, HIDDEN, generator=generator)
            state[f"{prefix}{head}.{layer}.linear.bias"] = torch.randn(HIDDEN, generator=generator)
        state[f"{prefix}{head}.{num_layers}.weight"] = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    return state


def plain_logits(
    state: Mapping[str, torch.Tensor], hidden: torch.Tensor, num_heads: int, num_layers: int
) -> torch.Tensor:
    """Computes logits of heads without a prefix, head by head and layer by layer: [num_heads, rows, vocabulary]."""
    logits = []
    for head in range(num_heads):
        states = hidden
        for layer in range(num_layers):
            weight, bias = state[f"{head}.{layer}.linear.weight"], state[f"{head}.{layer}.linear.bias"]
            states = states + silu(linear(states, weight, bias))
        logits.append(linear(states, state[f"{head}.{num_layers}.weight"]))
    return torch.stack(logits)


def write(
    folder: Path, state: Mapping[str, Any], config: Mapping[str, Any] | None, file: str = "medusa_lm_head.pt"
) -> str:
    """Writes a folder of heads; its name."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if file.endswith(".pt"):
        torch.save(dict(state), folder / file)
    else:
        save_file(dict(state), folder / file)
    return str(folder)


def original_config(num_heads: int = 3, num_layers: int = 1, **more: Any) -> dict[str, Any]:
    """A config.json as FasterDecoding/Medusa writes them."""
    return {
        "base_model_name_or_path": "lmsys/vicuna-7b-v1.3",
        "medusa_num_heads": num_heads,
        "medusa_num_layers": num_layers,
        "transformers_version": "4.31.0",
    } | more
