"""Reads and writes Medusa heads, in this project's layout and that of FasterDecoding/Medusa.

Both are a folder with `config.json` and a file of tensors `{head}.{layer}.linear.weight`, `{head}.{layer}.linear.bias`
and `{head}.{num_layers}.weight`, the projection. The original's is a torch file; ours is safetensors, and our config
also has sizes, measured accuracies and provenance.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.medusa.heads_config import (
    DRAWN,
    GREEDY,
    NUM_RANKS,
    SAMPLED,
    HeadsConfig,
    check_measured,
    check_sizes,
    read_config,
)
from vllm_spec_plugin.proposers.medusa.tensor_file import (
    ALLOWED,
    FILES,
    OUR_FILE,
    open_tensors,
)
from vllm_spec_plugin.proposers.model_source import local_folder

__all__ = [
    "DRAWN",
    "GREEDY",
    "NUM_RANKS",
    "SAMPLED",
    "HeadsConfig",
    "check_measured",
    "check_sizes",
    "load_heads",
    "read_heads_config",
    "save_heads",
]


def read_heads_config(model: str) -> HeadsConfig:
    """Reads config.json and the shapes of the tensors; downloads the files of a name on the hub.

    Args:
        model: a folder or a name on the Hugging Face hub.

    Raises:
        UnreadableError: the heads cannot be read, or config.json and tensors differ.
    """
    folder = local_folder(model, ["config.json", *FILES], ALLOWED)
    return read_config(folder, open_tensors(folder))


def load_heads(
    model: str,
    hidden_size: int,
    vocab_size: int,
    dtype: torch.dtype,
    device: torch.device | str,
    num_heads: int | None = None,
) -> MedusaHeads:
    """Loads heads for drafting, without gradients, with weights in the target's dtype.

    Args:
        model: a folder or a name on the Hugging Face hub.
        hidden_size: hidden size of the target.
        vocab_size: vocabulary size of the target.
        dtype: data type of the target's hidden states.
        device: device of the target's hidden states.
        num_heads: number of heads to load, from the first on; None is all.

    Raises:
        UnreadableError: the folder cannot be read, or the heads do not fit.
    """
    folder = local_folder(model, ["config.json", *FILES], ALLOWED)
    file = open_tensors(folder)
    config = read_config(folder, file)
    check_sizes(config, model, hidden_size, vocab_size, num_heads)
    heads = MedusaHeads(
        hidden_size, vocab_size, num_heads or config.num_heads, config.num_layers, dtype=dtype, device=device
    )
    tensors = file.read()

    def tensor(head: int, rest: str) -> torch.Tensor:
        return tensors[file.names[head, rest]]

    with torch.no_grad():
        for head in range(heads.num_heads):
            for layer in range(config.num_layers):
                heads.block_weights[layer][head].copy_(tensor(head, f"{layer}.linear.weight").T)
                heads.block_biases[layer][head].copy_(tensor(head, f"{layer}.linear.bias"))
            heads.projection[head].copy_(tensor(head, f"{config.num_layers}.weight").T)
    return heads.requires_grad_(False).eval()


def save_heads(heads: MedusaHeads, folder: Path, config: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Writes heads in this project's layout.

    Args:
        heads: the heads.
        folder: folder for config.json and the weights; created if it does not exist.
        config: keys of config.json besides the sizes: base_model_name_or_path, accuracy, paths, provenance...
        dtype: data type of the saved weights.
    """
    from safetensors.torch import save

    tensors = {}
    for head in range(heads.num_heads):
        for layer in range(heads.num_layers):
            tensors[f"{head}.{layer}.linear.weight"] = heads.block_weights[layer][head].T
            tensors[f"{head}.{layer}.linear.bias"] = heads.block_biases[layer][head, 0]
        tensors[f"{head}.{heads.num_layers}.weight"] = heads.projection[head].T
    folder.mkdir(parents=True, exist_ok=True)
    saved = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
    # safetensors itself creates a file that only its owner can read.
    (folder / OUR_FILE).write_bytes(save(saved, metadata={"format": "pt"}))
    sizes = {
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.num_layers,
        "hidden_size": heads.hidden_size,
        "vocab_size": heads.vocab_size,
    }
    (folder / "config.json").write_text(_to_json({**sizes, **config}) + "\n", encoding="utf-8")


def _to_json(config: Mapping[str, Any]) -> str:
    """Returns indented JSON, with one path per line."""
    paths = config.get("paths") or {}
    text = json.dumps({**config, "paths": {use: f"PATHS {use}" for use in paths}}, indent=2, ensure_ascii=False)
    for use, found in paths.items():
        lines = ",\n      ".join(json.dumps(path) for path in found)
        text = text.replace(f'"PATHS {use}"', f"[\n      {lines}\n    ]", 1)
    return text
