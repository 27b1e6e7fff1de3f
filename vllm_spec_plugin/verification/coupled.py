"""Verification coupled with the target's own noise: a draft token is accepted if it is what the target samples.

Every position is sampled as without speculation, with noise that depends on the request's seed and the position alone.
So outputs are those of no speculation, token for token, whatever the drafts were, and no draft probabilities are
needed. Drafts sampled with the same noise are accepted more often than others (Gumbel coupling: Daliri et al. 2025,
"Coupling without communication and drafter-invariant speculative decoding").
"""

import torch


def accept_equal(
    sampled: torch.Tensor, drafts: torch.Tensor, starts: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns [n, width] output tokens of each request, of which the first so many count, and [n] int32, how many.

    Nothing waits for the device.

    Args:
        sampled: [num_rows], the token that the target samples at each row: after the request's last token, and after
            each of its draft tokens.
        drafts: [num_rows], the token that each row follows: a request's last token, then its draft tokens. Below 0
            stands for none.
        starts: [n + 1], the first row of each request; the end of the last one.
        width: maximum rows of a request.
    """
    rows = starts[:-1, None] + torch.arange(width, device=sampled.device)
    last = starts[1:, None] - 1
    # A request with fewer rows repeats its last one.
    own = sampled[rows.minimum(last)]
    follows = drafts[(rows + 1).minimum(last)]
    equal = (own == follows) & (rows < last)
    return own, equal.cumprod(1).sum(1, dtype=torch.int32) + 1
