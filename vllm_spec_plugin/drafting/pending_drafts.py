"""Drafts on their way through the scheduler: by priority there, where they may be cut, and depth first back."""

from collections.abc import Iterable, Sequence

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, collate
from vllm_spec_plugin.verification.topology import Topology, chain


class PendingDrafts:
    """Keeps q and shape of drafts until they are verified, by request."""

    def __init__(self) -> None:
        """Starts without drafts."""
        self._drafts: dict[str, Draft] = {}

    def store(self, requests: Sequence[RequestView], drafts: Sequence[Draft]) -> None:
        """Keeps the draft of each request in place of an earlier one."""
        for request, draft in zip(requests, drafts, strict=True):
            # Of a certain chain there is nothing to remember.
            if draft.probs is not None or draft.tree is not None:
                self._drafts[request.request_id] = draft
            else:
                self._drafts.pop(request.request_id, None)

    def lay_out(self, scheduled: dict[str, list[int]]) -> None:
        """Puts the nodes of trees that a step verifies in depth-first order, as the target computes them.

        Args:
            scheduled: per request the draft tokens that the scheduler has left of what it was sent; changed in place.
        """
        for request_id, sent in scheduled.items():
            draft = self._drafts.get(request_id, NO_DRAFT)
            if draft.tree is not None:
                draft = self._drafts[request_id] = as_cut(draft, sent)
                scheduled[request_id] = draft.token_ids or sent

    def tree(self, request_id: str, draft_token_ids: Sequence[int]) -> Topology:
        """The shape of a request's drafts that are verified in this step, after `lay_out`.

        Others than were drafted are verified one after the other.
        """
        tree, count = self._of(request_id, draft_token_ids).tree, len(draft_token_ids)
        return chain(count) if tree is None else tree.first(count)

    def take_probs(
        self, request_ids: Sequence[str], draft_token_ids: Sequence[Sequence[int]], device: torch.device
    ) -> DraftProbs:
        """q of the drafts that are verified in this step, which is then forgotten.

        A request that is not scheduled for some steps has its draft verified later. The scheduler may
        have cut a draft short, but for the sake of its tokens' values only if they were point masses:
        q's rows of the tokens that are left are still right. Tokens that were not drafted count as certain.

        Args:
            request_ids: the step's requests.
            draft_token_ids: per request, the drafted tokens it verifies.
            device: where the scorer runs.
        """
        if not self._drafts:
            return None
        pairs = zip(request_ids, draft_token_ids, strict=True)
        probs = [self._of(request_id, tokens).probs for request_id, tokens in pairs]
        self.drop(request_ids)
        return collate(draft_token_ids, probs, device)

    def drop(self, request_ids: Iterable[str]) -> None:
        """Forgets the drafts of requests whose text goes on without them, or has ended."""
        if self._drafts:
            for request_id in request_ids:
                self._drafts.pop(request_id, None)

    def _of(self, request_id: str, draft_token_ids: Sequence[int]) -> Draft:
        """The draft that begins with these tokens; of others neither shape nor q is known."""
        draft = self._drafts.get(request_id, NO_DRAFT)
        return draft if draft.token_ids[: len(draft_token_ids)] == list(draft_token_ids) else NO_DRAFT


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
