"""Medusa heads made for tests, and a plain computation of what they say."""

import json
from pathlib import Path

import torch

from tests.engine.exact import Reference


class PlainHeads:
    """Heads one at a time, straight from a state dict of FasterDecoding/Medusa's names."""

    def __init__(self, state: dict[str, torch.Tensor], num_heads: int, num_layers: int) -> None:
        self._state, self._num_heads, self._num_layers = state, num_heads, num_layers

    def logits(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Per head [vocab_size], from a state [hidden_size]."""
        logits = []
        for head in range(self._num_heads):
            x = hidden
            for layer in range(self._num_layers):
                weight, bias = (self._state[f"{head}.{layer}.linear.{name}"] for name in ("weight", "bias"))
                x = x + torch.nn.functional.silu(weight @ x + bias)
            logits.append(self._state[f"{head}.{self._num_layers}.weight"] @ x)
        return logits


def original_layout(folder: Path, reference: Reference, num_heads: int, num_layers: int) -> PlainHeads:
    """Writes heads near the target's own projection as `config.json` and `medusa_lm_head.pt`; seed 0."""
    generator = torch.Generator().manual_seed(0)
    projection = reference.model.get_output_embeddings().weight.detach()
    vocab_size, hidden_size = projection.shape

    def noise(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    state = {}
    for head in range(num_heads):
        for layer in range(num_layers):
            state[f"{head}.{layer}.linear.weight"] = noise(hidden_size, hidden_size, scale=0.05)
            state[f"{head}.{layer}.linear.bias"] = noise(hidden_size, scale=0.05)
        state[f"{head}.{num_layers}.weight"] = projection + noise(vocab_size, hidden_size, scale=0.01)
    torch.save(state, folder / "medusa_lm_head.pt")
    config = {"medusa_num_heads": num_heads, "medusa_num_layers": num_layers, "base_model_name_or_path": "target"}
    (folder / "config.json").write_text(json.dumps(config))
    return PlainHeads(state, num_heads, num_layers)
