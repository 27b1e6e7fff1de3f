"""Chooses draft tokens from q, one or several per position, in torch alone."""

import torch

from vllm_spec_plugin.verification.sampling import draw

__all__ = ["draw", "draw_siblings", "most_likely"]


def most_likely(logits: torch.Tensor) -> torch.Tensor:
    """Returns [n] int64, the first maximum per row of `logits` ([n, vocab_size] float32)."""
    if logits.device.type == "cpu":
        # A tenth of the time that torch takes.
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def draw_siblings(logits: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples siblings without replacement; returns the tokens, and each one's q given those before it.

    As in Sequoia (Chen et al., arXiv 2402.12374): no token is verified twice, and siblings cover more of p than
    independent samples.

    Args:
        logits: [n, vocab_size] float32; softmax of it is q.
        uniforms: [n, k] float64 in [0, 1).

    Returns:
        [n, k] int64 tokens, and [n, k, vocab_size] float32, q of each. If q has fewer than k tokens with positive
        probability, the others are point masses that will be rejected.
    """
    n, k = uniforms.shape
    tokens = torch.empty(n, k, dtype=torch.int64, device=logits.device)
    if k == 1:
        q = logits.softmax(-1)
        tokens[:, 0] = draw(q, uniforms[:, 0])
        return tokens, q[:, None]
    probs = torch.empty(n, k, logits.shape[-1], device=logits.device)
    left = torch.softmax(logits, -1, out=probs[:, 0]).clone()
    for rank in range(k):
        q = probs[:, rank]
        if rank:
            left.scatter_(1, tokens[:, rank - 1, None], 0)
            total = left.sum(-1, keepdim=True)
            torch.div(left, total, out=q)
            used_up = (total <= 0).squeeze(1)
            if bool(used_up.any()):
                q[used_up] = 0
                q[used_up, 0] = 1
        tokens[:, rank] = draw(q, uniforms[:, rank])
    return tokens, probs
