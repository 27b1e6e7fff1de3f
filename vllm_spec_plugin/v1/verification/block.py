"""Block verification: accepts a request's draft tokens jointly, more on average than token by token.

The derivation is in docs/design/verification.md.
"""

import torch

from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, token_probs

# Vocabulary entries per operation.
_COMPARED_AT_ONCE = 2**26


def accept_blocks(
    probs: torch.Tensor,
    p: torch.Tensor,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    noise: Noise,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the number of accepted draft tokens per request (Sun et al., 2025, algorithm 2).

    With w_0 = 1 and w_i = min(1, w_{i-1} p_i(x_i) / q_i(x_i)), the first i of a request's n tokens are accepted with
    probability w_i, for every n. Each i is tested by a uniform of its own, and the largest i that passes counts:

        u_i < h_i,  h_n = w_n,  h_i = r_i / (r_i + 1 - w_i),  r_i = sum over x of max(0, w_i p_{i+1}(x) - q_{i+1}(x))

    The token after i < n accepted ones must come from norm(max(0, w_i p_{i+1} - q_{i+1})).

    Failed tests are part of the decision, so their noise must not decide later steps. The uniforms of a seeded request
    are those of the step's first output position, one per draft token, and every step begins at another position.

    The host reads nothing back from the device.

    Args:
        probs: [num_rows, vocab_size] float32, p.
        p: [num_draft_tokens] float32, p of each draft token.
        tokens: [num_draft_tokens] int64, at least 0.
        lengths: [batch_size] int64, n: draft tokens per request that may be accepted; 0 excludes the request.
        draft_probs: q of each draft token.
        rows: layout of the step, with at least one draft token.
        noise: random numbers of the step.

    Returns:
        [batch_size] int64, number of accepted tokens; and [batch_size] float32, w after them.

    Raises:
        ValueError: no q (greedy drafts).
    """
    if draft_probs is None:
        raise ValueError("block verification needs sampled drafts: greedy ones are verified token by token")
    noises = noise.uniform(rows.draft_first, rows.draft_offset)
    request, column, columns = rows.draft_request, rows.draft_offset, rows.columns
    q = token_probs(draft_probs, tokens)
    uniforms = torch.ones(len(rows.first), rows.width - 1, dtype=torch.float64, device=p.device)
    ratios = torch.zeros_like(uniforms)
    uniforms[request, column] = noises
    # Tokens with p = 0 are never accepted, nor are those with q = 0.
    ratios[request, column] = torch.where(q > 0, p.double() / q, 0)
    weights = reflected(ratios)

    after = lengths[:, None] - 1 - columns
    # h is at most w. For w = 1 and r > 0, h = 1; for r = 0 the next w is 1 too, and this test does not count.
    may_pass = (uniforms < weights) & (after >= 0)
    passes = may_pass & ((after == 0) | (weights == 1))
    is_open = may_pass ^ passes
    drafts = rows.later_drafts
    if len(drafts):
        owner, at = request[drafts], column[drafts] - 1
        weight = weights[owner, at]
        left = _left(probs, draft_probs, rows.draft_row[drafts], drafts, weight.float())
        is_below = uniforms[owner, at] < left / (left + 1 - weight)
        passes[owner, at] |= is_open[owner, at] & is_below
    num_accepted = _largest(passes, columns)
    accepted = weights.gather(1, (num_accepted - 1).clamp_min(0)[:, None]).squeeze(1)
    return num_accepted, torch.where(num_accepted > 0, accepted, 1).float()


def reflected(ratios: torch.Tensor) -> torch.Tensor:
    """Returns [batch_size, n], w_i = min(1, w_{i-1} ratio_i): a walk of logarithms reflected at 0."""
    walk = ratios.log().cumsum(1)
    return (walk - walk.cummax(1).values.clamp_min(0)).exp()


def _largest(passes: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Returns [batch_size] int64, the last column that passes, counted from 1; 0 if none does."""
    return torch.where(passes, columns + 1, 0).amax(1)


def _left(
    probs: torch.Tensor,
    draft_probs: torch.Tensor | SparseProbs,
    at: torch.Tensor,
    drafts: torch.Tensor,
    weight: torch.Tensor,
) -> torch.Tensor:
    """Returns [n] float32, r: the sum over x of max(0, w p(x) - q(x)).

    Args:
        probs: [num_rows, vocab_size], p.
        draft_probs: q of each draft token.
        at: [n] int64, rows of p.
        drafts: [n] int64, draft tokens whose q is subtracted.
        weight: [n] float32, w.
    """
    if isinstance(draft_probs, SparseProbs):
        q = draft_probs.probs[drafts]
        both = torch.minimum(probs[at[:, None], draft_probs.token_ids[drafts]] * weight[:, None], q)
        return (weight - both.sum(-1)).clamp_min_(0)
    num_at_once = max(_COMPARED_AT_ONCE // probs.shape[1], 1)
    parts = zip(*(torch.split(part, num_at_once) for part in (at, drafts, times_taken(weight)[:, None])), strict=True)
    lefts = (torch.addcmul(probs[rows], draft_probs[own], times, value=-1) for rows, own, times in parts)
    return torch.cat([left.clamp_min_(0).sum(-1) for left in lefts]) * weight


def times_taken(weight: torch.Tensor) -> torch.Tensor:
    """Returns 1 / w, the factor of q in the residual max(0, p - q / w); finite, as w = 0 has probability 0."""
    return 1 / weight.clamp_min(torch.finfo(torch.float32).tiny)
