"""Choosing draft tokens from the draft's distributions, in torch alone."""

import torch


def draw(probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """[n] int64: per row a token with probability `probs`, by inverting the distribution function.

    Args:
        probs: [n, vocab_size] float32, rows sum to 1 up to rounding.
        uniforms: [n] float64 in [0, 1).
    """
    cumulated = probs.cumsum(-1, dtype=torch.float64)
    # Nearer to 1, u * total could round up to the total, behind the last token that has any probability.
    below = uniforms.clamp(max=1 - 2**-52)[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, below, right=True).squeeze(1)


def confidence(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[n] float32: softmax(logits) at `tokens`."""
    return logits.log_softmax(-1).gather(1, tokens[:, None]).squeeze(1).exp()
