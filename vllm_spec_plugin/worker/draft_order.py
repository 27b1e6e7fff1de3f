"""The order of a draft's tokens on their way: by priority to the scheduler, which may cut them, depth first back."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs


def tokens_to_send(draft: Draft) -> list[int]:
    """A draft's tokens by priority: what the scheduler cuts for want of room is the least probable."""
    if draft.tree is None:
        return draft.token_ids
    return [draft.token_ids[node] for node in draft.tree.order]


def as_cut(draft: Draft, sent: Sequence[int]) -> Draft:
    """The part of a draft that the scheduler has left.

    Args:
        draft: as it was proposed.
        sent: what came back from the scheduler.

    Returns:
        A tree with its tokens and q depth first; no draft if `sent` is not what the draft's tokens begin with.
    """
    if tokens_to_send(draft)[: len(sent)] != list(sent):
        return NO_DRAFT
    if draft.tree is None or len(sent) == draft.tree.num_nodes:
        return draft
    kept = sorted(draft.tree.order[: len(sent)])
    tokens = [draft.token_ids[node] for node in kept]
    return Draft(tokens, _rows(draft.probs, kept), draft.tree.first(len(sent)))


def _rows(probs: DraftProbs, nodes: list[int]) -> DraftProbs:
    if isinstance(probs, SparseProbs):
        return SparseProbs(probs.token_ids[nodes], probs.probs[nodes])
    return None if probs is None else probs[nodes]
