"""q, the distributions that drafts were drawn from, in the three shapes proposers give them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SparseProbs:
    """Draft distributions with few possible tokens, one row per draft token.

    Attributes:
        token_ids: [num_draft_tokens, width] int64, the tokens a row gives probability to; a row with
            fewer repeats any of its tokens with probability 0.
        probs: [num_draft_tokens, width] float32, rows sum to 1.
    """

    token_ids: torch.Tensor
    probs: torch.Tensor

    def __len__(self) -> int:
        return self.token_ids.shape[0]


# None: point masses, every draft token was certain. A tensor is dense: [num_draft_tokens, vocab_size].
DraftProbs = SparseProbs | torch.Tensor | None


def token_probs(draft_probs: DraftProbs, tokens: torch.Tensor) -> torch.Tensor:
    """[num_draft_tokens] float32: q of each draft token."""
    if draft_probs is None:
        return torch.ones(len(tokens), device=tokens.device)
    if isinstance(draft_probs, SparseProbs):
        return (draft_probs.probs * (draft_probs.token_ids == tokens[:, None])).sum(-1)
    return draft_probs.gather(1, tokens[:, None]).squeeze(1)


def collate(token_ids: Sequence[Sequence[int]], probs: Sequence[DraftProbs], device: torch.device) -> DraftProbs:
    """One q for a step's drafts, in request order.

    Args:
        token_ids: per request its draft tokens.
        probs: per request q of at least that many draft tokens; more are left out, None is certainty.
        device: where the scorer runs.

    Returns:
        None if all are certain; dense if any is dense; else sparse.
    """
    if all(q is None for q, tokens in zip(probs, token_ids, strict=True) if tokens):
        return None
    pairs = [(list(tokens), q) for tokens, q in zip(token_ids, probs, strict=True) if tokens]
    dense = next((q for _, q in pairs if isinstance(q, torch.Tensor)), None)
    if dense is not None:
        return torch.cat([_as_dense(tokens, q, dense.shape[1]).to(device) for tokens, q in pairs])
    sparse = [_as_sparse(tokens, q) for tokens, q in pairs]
    width = max(q.token_ids.shape[1] for q in sparse)
    return SparseProbs(
        torch.cat([_widened(q.token_ids, width) for q in sparse]).to(device),
        torch.cat([torch.nn.functional.pad(q.probs, (0, width - q.probs.shape[1])) for q in sparse]).to(device),
    )


def _widened(token_ids: torch.Tensor, width: int) -> torch.Tensor:
    return torch.cat([token_ids, token_ids[:, :1].expand(-1, width - token_ids.shape[1])], dim=1)


def _as_sparse(tokens: list[int], probs: DraftProbs) -> SparseProbs:
    if isinstance(probs, SparseProbs):
        return SparseProbs(probs.token_ids[: len(tokens)], probs.probs[: len(tokens)])
    return SparseProbs(torch.tensor(tokens)[:, None], torch.ones(len(tokens), 1))


def _as_dense(tokens: list[int], probs: DraftProbs, vocab_size: int) -> torch.Tensor:
    if isinstance(probs, torch.Tensor):
        return probs[: len(tokens)]
    sparse = _as_sparse(tokens, probs)
    dense = torch.zeros(len(tokens), vocab_size, device=sparse.probs.device)
    return dense.scatter_add_(1, sparse.token_ids, sparse.probs)
