"""Chain verification: Algorithm 1 of Leviathan et al. (2023) over a ragged batch, in torch alone."""

import torch

from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, token_probs
from vllm_spec_plugin.verification.noise import Noise
from vllm_spec_plugin.verification.rows import Rows

NO_TOKEN = -1


def verify_chain(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    greedy: torch.Tensor,
    noise: Noise,
    lenience: float = 1.0,
) -> torch.Tensor:
    """Decides which draft tokens are kept and samples the token that follows them.

    A sampled request keeps draft token x with probability min(1, p(x) / q(x)); after the first
    rejection it outputs a token of norm(max(0, p - q)), after none a bonus token of p. A greedy
    request keeps a token that is p's most likely one. The output is then distributed as p.

    A seeded request whose draft is certain (q(x) = 1) draws its token from p first and keeps the
    draft if they are equal: the same probabilities, and an output that does not depend on the draft.

    Args:
        target_logits: [num_rows, vocab_size] float32, after the request's whole sampling pipeline.
        draft_token_ids: [num_draft_tokens] int64; `NO_TOKEN` is a place nothing was drafted for: it
            and what follows it in its request are dropped.
        draft_probs: q of each draft token.
        rows: the step's layout.
        greedy: [batch_size] bool.
        noise: the step's randomness.
        lenience: l in (0, 1]; 1 is exact, less multiplies q before comparing (appendix A.5, where no
            token becomes likelier than p / l), and lets greedy requests keep x if p(x) >= l max(p).

    Returns:
        [batch_size, rows.width] int32: per request the accepted tokens, then the recovered or bonus
        token, then `NO_TOKEN`.
    """
    any_greedy, all_greedy = bool(greedy.any()), bool(greedy.all())
    most_likely = target_logits.argmax(-1) if any_greedy else torch.zeros_like(rows.request)
    drafted = draft_token_ids != NO_TOKEN
    tokens = draft_token_ids.clamp_min(0)
    probs = target_logits if all_greedy and lenience == 1 else target_logits.softmax(-1)

    accepted = most_likely[rows.draft_row] == tokens
    p = probs[rows.draft_row, tokens]
    if lenience < 1:
        accepted = p >= lenience * probs.amax(-1)[rows.draft_row]
    if not all_greedy:
        q = token_probs(draft_probs, tokens)
        # Strictly: an impossible token (p = 0) is never kept, a certain one (p >= q) always.
        kept = (noise.uniform(rows.draft_row) * lenience * q < p) & (q > 0)
        if lenience == 1 and noise.seeded is not None:
            coupled = (noise.seeded[rows.draft_row] & (q == 1)).nonzero().squeeze(1)
            at = rows.draft_row[coupled]
            kept[coupled] = (probs[at] / noise.exponential(at)).argmax(-1) == tokens[coupled]
        accepted = torch.where(greedy[rows.request[rows.draft_row]], accepted, kept)

    num_accepted = _leading(accepted & drafted, rows)
    stop = rows.first + num_accepted
    next_token = most_likely[stop]
    if not all_greedy:
        residual = _residual(probs[stop], tokens, drafted, draft_probs, rows, num_accepted)
        sampled = residual.div_(noise.exponential(stop)).argmax(-1)
        next_token = torch.where(greedy, next_token, sampled)
    return _output(tokens, next_token, num_accepted, rows)


def _leading(accepted: torch.Tensor, rows: Rows) -> torch.Tensor:
    """[batch_size] int64: how many of each request's draft tokens are accepted before the first that is not."""
    grid = torch.zeros(len(rows.first), rows.width, dtype=torch.int64, device=accepted.device)
    grid[rows.request[rows.draft_row], rows.offset[rows.draft_row]] = accepted.long()
    return grid.cumprod(1).sum(1)


def _residual(
    probs: torch.Tensor,
    tokens: torch.Tensor,
    drafted: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    num_accepted: torch.Tensor,
) -> torch.Tensor:
    """[batch_size, vocab_size]: max(0, p - q) where a draft token was rejected, p elsewhere; unnormalised.

    Args:
        probs: [batch_size, vocab_size], p at the row each request stopped at; changed in place.
    """
    rejected = (num_accepted < rows.num_draft_tokens).nonzero().squeeze(1)
    draft = rows.draft_start[rejected] + num_accepted[rejected]
    real = drafted[draft]
    rejected, draft = rejected[real], draft[real]
    if not len(rejected):
        return probs
    left = probs[rejected]
    if draft_probs is None:
        left.scatter_(1, tokens[draft, None], 0)
    elif isinstance(draft_probs, SparseProbs):
        left.scatter_add_(1, draft_probs.token_ids[draft], -draft_probs.probs[draft])
    else:
        left -= draft_probs[draft]
    left.clamp_min_(0)
    # Nothing left means p = q up to rounding; such a rejection has probability 0 in exact arithmetic.
    empty = left.sum(-1, keepdim=True) <= 0
    probs[rejected] = torch.where(empty, probs[rejected], left)
    return probs


def _output(tokens: torch.Tensor, next_token: torch.Tensor, num_accepted: torch.Tensor, rows: Rows) -> torch.Tensor:
    output = torch.full((len(rows.first), rows.width), NO_TOKEN, dtype=torch.int64, device=tokens.device)
    output[rows.request[rows.draft_row], rows.offset[rows.draft_row]] = tokens
    columns = torch.arange(rows.width, device=tokens.device)
    output = torch.where(columns < num_accepted[:, None], output, NO_TOKEN)
    output.scatter_(1, num_accepted[:, None], next_token[:, None])
    return output.int()
