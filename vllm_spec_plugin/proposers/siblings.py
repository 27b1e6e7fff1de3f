"""Drawing several tokens for the same place, in torch alone."""

import torch

from vllm_spec_plugin.proposers.draw import draw


def draw_siblings(logits: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens drawn without replacement, and what each was drawn from given those before it.

    Sequoia (Chen et al., arXiv 2402.12374) draws like this: no token is verified twice, and siblings
    cover more of p than independent draws.

    Args:
        logits: [n, vocab_size] float32; softmax of it is q.
        uniforms: [n, k] float64 in [0, 1).

    Returns:
        [n, k] int64 tokens, and [n, k, vocab_size] float32, q of each. Where q has fewer than k tokens
        with any probability, further ones are certain, and worth nothing.
    """
    n, k = uniforms.shape
    left = logits.softmax(-1)
    tokens = torch.empty(n, k, dtype=torch.int64, device=logits.device)
    probs = left.new_empty(n, k, left.shape[-1])
    for rank in range(k):
        total = left.sum(-1, keepdim=True)
        q = probs[:, rank] = left / total
        used_up = (total <= 0).squeeze(1)
        if rank and bool(used_up.any()):
            q[used_up] = 0
            q[used_up, 0] = 1
            probs[:, rank] = q
        tokens[:, rank] = draw(q, uniforms[:, rank])
        left.scatter_(1, tokens[:, rank, None], 0)
    return tokens, probs
