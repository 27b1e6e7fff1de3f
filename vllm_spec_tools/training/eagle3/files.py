"""Writes a trained head in the speculators layout, which vLLM's own `method: eagle3` loads too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.proposers.eagle3.checkpoint import WEIGHTS
from vllm_spec_tools.training.eagle3.reference import Eagle3Head


def save_head(
    head: Eagle3Head,
    target_ids: torch.Tensor,
    folder: Path,
    dtype: torch.dtype,
    num_tokens: int,
    more: Mapping[str, Any],
) -> None:
    """Writes config.json and the weights.

    The target's embedding is not among them: vLLM uses the target's.

    Args:
        target_ids: [draft_vocab_size] int64, the target's token of each of the head's, ascending.
        folder: created if it does not exist.
        num_tokens: draft tokens that vLLM's own method drafts by default.
    """
    from safetensors.torch import save

    config = head.config
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in head.state_dict().items()}
    if config.draft_vocab_size != config.vocab_size:
        ids = target_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
        tensors["t2d"][ids] = True
    proposal = {"proposal_type": "greedy", "speculative_tokens": num_tokens}
    data = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": config.base_model},
        },
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(config.aux_layers or ()),
        "norm_before_residual": config.norm_before_residual,
        "transformer_layer_config": dict(config.layer),
    }
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors itself would make a file that only its owner can read.
    (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
    (folder / "config.json").write_text(json.dumps({**data, **more}, indent=2, ensure_ascii=False) + "\n", "utf-8")
