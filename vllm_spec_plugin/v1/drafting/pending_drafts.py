"""Keeps drafts while the scheduler has their tokens: sent by priority, since it may cut them; verified depth first."""

from collections.abc import Iterable, Sequence

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, collate
from vllm_spec_plugin.verification.topology import Topology, chain


class PendingDrafts:
    """Keeps q and shape of each request's draft until it is verified."""

    def __init__(self) -> None:
        """Starts without drafts."""
        self._drafts: dict[str, Draft] = {}

    def store(self, requests: Sequence[RequestView], drafts: Sequence[Draft]) -> None:
        """Keeps the draft of each request, replacing an earlier one."""
        for request, draft in zip(requests, drafts, strict=True):
            # Of a certain chain there is nothing to remember.
            if draft.probs is not None or draft.tree is not None:
                self._drafts[request.request_id] = draft
            else:
                self._drafts.pop(request.request_id, None)

    def lay_out(self, scheduled: dict[str, list[int]]) -> None:
        """Puts the nodes of trees that a step verifies in depth-first order, as the target computes them.

        Args:
            scheduled: per request the draft tokens that the scheduler has kept; changed in place.
        """
        for request_id, sent in scheduled.items():
            draft = self._drafts.get(request_id, NO_DRAFT)
            if draft.tree is not None:
                draft = self._drafts[request_id] = as_cut(draft, sent)
                scheduled[request_id] = draft.token_ids or sent

    def tree(self, request_id: str, draft_token_ids: Sequence[int]) -> Topology:
        """Returns the shape of a request's drafts that are verified in this step, after `lay_out`.

        Unknown tokens are verified as a chain.
        """
        tree, count = self._of(request_id, draft_token_ids).tree, len(draft_token_ids)
        return chain(count) if tree is None else tree.first(count)

    def take_probs(
        self, request_ids: Sequence[str], draft_token_ids: Sequence[Sequence[int]], device: torch.device
    ) -> DraftProbs:
        """Returns q of the drafts that are verified in this step, and drops it.

        A request that is not scheduled for some steps has its draft verified later. The scheduler may have cut a draft,
        but because of tokens' values only for point masses, so q's rows of the kept tokens are still correct. Unknown
        tokens are verified as point masses.

        Args:
            request_ids: ids of the step's requests.
            draft_token_ids: per request, the draft tokens to verify.
            device: device of the verification.
        """
        if not self._drafts:
            return None
        pairs = zip(request_ids, draft_token_ids, strict=True)
        probs = [self._of(request_id, tokens).probs for request_id, tokens in pairs]
        self.drop(request_ids)
        return collate(draft_token_ids, probs, device)

    def drop(self, request_ids: Iterable[str]) -> None:
        """Drops the drafts of requests that continue without them, or have ended."""
        if self._drafts:
            for request_id in request_ids:
                self._drafts.pop(request_id, None)

    def _of(self, request_id: str, draft_token_ids: Sequence[int]) -> Draft:
        """Returns the draft that begins with these tokens; for other tokens one without q and shape."""
        draft = self._drafts.get(request_id, NO_DRAFT)
        return draft if draft.token_ids[: len(draft_token_ids)] == list(draft_token_ids) else NO_DRAFT


def tokens_to_send(draft: Draft) -> list[int]:
    """Returns a draft's tokens by priority, so that the scheduler's cuts drop the least probable ones."""
    if draft.tree is None:
        return draft.token_ids
    return [draft.token_ids[node] for node in draft.tree.order]


def as_cut(draft: Draft, sent: Sequence[int]) -> Draft:
    """Returns the part of a draft that the scheduler has kept.

    Args:
        draft: the proposed draft.
        sent: its tokens that came back from the scheduler.

    Returns:
        A tree with tokens and q depth first; no draft if `sent` is not a prefix of the tokens that were sent.
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
