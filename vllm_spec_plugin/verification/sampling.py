"""Samples one token per row by inverting the distribution function, in torch alone."""

import torch

# Tokens per block, whose weights are summed first.
_BLOCK = 64


def draw(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Returns [n] int64, a token per row, by inverting the distribution function over blocks, then within a block.

    Args:
        weights: [n, vocab_size] float32, at least 0, proportional to the probabilities.
        uniforms: [n] float64 in [0, 1).
    """
    n, vocab_size = weights.shape
    if padding := -vocab_size % _BLOCK:
        weights = torch.nn.functional.pad(weights, (0, padding))
    blocks = weights.view(n, weights.shape[1] // _BLOCK, _BLOCK)
    block, rest = _invert(blocks.sum(-1), uniforms[:, None])
    chosen = blocks[torch.arange(n, device=weights.device), block.squeeze(1)]
    token, _ = _invert(chosen, rest)
    return (block * _BLOCK + token).squeeze(1).clamp_max_(vocab_size - 1)


def _invert(weights: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns [n, 1], the entry of each uniform ([n, 1]), and its relative position in the entry, uniform again."""
    cumulated = weights.cumsum(-1, dtype=torch.float64)
    # Closer to 1, u * total could round up to the total, past the last entry with positive weight.
    below = uniforms.clamp(max=1 - 2**-52) * cumulated[:, -1:]
    entry = torch.searchsorted(cumulated, below, right=True).clamp_max_(weights.shape[1] - 1)
    own = weights.gather(1, entry).double()
    return entry, ((below - cumulated.gather(1, entry) + own) / own).clamp(0, 1)
