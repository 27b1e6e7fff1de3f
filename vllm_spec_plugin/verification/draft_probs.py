"""Represents q, the distributions of draft tokens: as point masses, sparse or dense."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SparseProbs:
    """Draft distributions with few possible tokens, one row per draft token.

    Attributes:
        token_ids: [num_draft_tokens, width] int64, possible tokens of each row, each once, padded with any of them.
        probs: [num_draft_tokens, width] float32, their probabilities, 0 for padding; rows sum to 1.
    """

    token_ids: torch.Tensor
    probs: torch.Tensor

    def __len__(self) -> int:
        return self.token_ids.shape[0]


# None: point masses (greedy drafts). A tensor is dense: [num_draft_tokens, vocab_size].
DraftProbs = SparseProbs | torch.Tensor | None


def token_probs(draft_probs: DraftProbs, tokens: torch.Tensor) -> torch.Tensor:
    """Returns [num_draft_tokens] float32, q of each draft token."""
    if draft_probs is None:
        return torch.ones(len(tokens), device=tokens.device)
    if isinstance(draft_probs, SparseProbs):
        return (draft_probs.probs * (draft_probs.token_ids == tokens[:, None])).sum(-1)
    return draft_probs.gather(1, tokens[:, None]).squeeze(1)


def collate(token_ids: Sequence[Sequence[int]], probs: Sequence[DraftProbs], device: torch.device) -> DraftProbs:
    """Joins the requests' q of a step, in request order.

    Args:
        token_ids: per request its draft tokens.
        probs: per request q of at least as many draft tokens, further rows are ignored; None is point masses.
        device: device of the verification.

    Returns:
        None if all are point masses; dense if any is dense; else sparse.
    """
    if all(q is None for q, tokens in zip(probs, token_ids, strict=True) if tokens):
        return None
    pairs = [(tokens, q) for tokens, q in zip(token_ids, probs, strict=True) if tokens]
    dense = next((q for _, q in pairs if isinstance(q, torch.Tensor)), None)
    # Moved one by one: proposers need not share a device.
    if dense is not None:
        return stack_rows([_as_dense(tokens, q, dense.shape[1]).to(device) for tokens, q in pairs])
    return stack_sparse([_as_sparse(tokens, q) for tokens, q in pairs], device)


def stack_rows(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns [rows, width], the parts below each other; a view if they are adjacent in memory, as is usual in a step.

    Args:
        parts: at least one tensor, each [any, width].
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if first.device.type in ("cpu", "cuda"):
        storage, at = first.untyped_storage().data_ptr(), first.storage_offset()
        for part in parts:
            is_next = part.storage_offset() == at and part.untyped_storage().data_ptr() == storage
            if not is_next or part.dtype != first.dtype or not part.is_contiguous():
                break
            at += part.numel()
        else:
            width = first.shape[1]
            return first.as_strided((sum([len(part) for part in parts]), width), (width, 1))
    return torch.cat(list(parts))


def stack_sparse(parts: Sequence[SparseProbs], device: torch.device | None = None) -> SparseProbs:
    """Returns the parts below each other, with the width of the widest.

    Args:
        parts: at least one.
        device: device of the result; None is the parts' common one.
    """
    width = max([q.probs.shape[1] for q in parts])
    token_ids, probs = [_widened(q.token_ids, width) for q in parts], [_padded(q.probs, width) for q in parts]
    if device is not None:
        token_ids, probs = [t.to(device) for t in token_ids], [p.to(device) for p in probs]
    return SparseProbs(torch.cat(token_ids), torch.cat(probs))


def _widened(token_ids: torch.Tensor, width: int) -> torch.Tensor:
    missing = width - token_ids.shape[1]
    return torch.cat([token_ids, token_ids[:, :1].expand(-1, missing)], dim=1) if missing else token_ids


def _padded(probs: torch.Tensor, width: int) -> torch.Tensor:
    missing = width - probs.shape[1]
    return torch.nn.functional.pad(probs, (0, missing)) if missing else probs


def _as_sparse(tokens: Sequence[int], probs: DraftProbs) -> SparseProbs:
    if isinstance(probs, SparseProbs):
        is_whole = len(probs) == len(tokens)
        return probs if is_whole else SparseProbs(probs.token_ids[: len(tokens)], probs.probs[: len(tokens)])
    return SparseProbs(torch.tensor(tokens)[:, None], torch.ones(len(tokens), 1))


def _as_dense(tokens: Sequence[int], probs: DraftProbs, vocab_size: int) -> torch.Tensor:
    if isinstance(probs, torch.Tensor):
        return probs[: len(tokens)]
    sparse = _as_sparse(tokens, probs)
    dense = torch.zeros(len(tokens), vocab_size, device=sparse.probs.device)
    return dense.scatter_add_(1, sparse.token_ids, sparse.probs)
