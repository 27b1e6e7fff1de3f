"""Several proposers in order: the first one with a draft for a request drafts."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, Proposer, RequestView


@dataclass(frozen=True)
class Member:
    """A proposer of the cascade.

    Attributes:
        proposer: the proposer.
        drafts_trees: whether its drafts may have branches.
        keeps_kv: whether it keeps KV, and so gets requests in prefill too.
    """

    proposer: Proposer
    drafts_trees: bool = False
    keeps_kv: bool = False


# Called with the index of a member, its views, its drafts, and its seconds.
Note = Callable[[int, Sequence[RequestView], Sequence[Draft], float], None]


class Cascade:
    """Tries each request's proposers in the order of its draft plan, until one has a draft.

    A proposer gets all requests of a step in one call where their plans allow it, as the passes of a draft model are
    shared. Whether a proposer has a draft must not depend on tokens that it sampled.

    A request in prefill goes only to the first of its proposers, if that keeps KV; later ones catch up when they draft.
    """

    def __init__(self, members: Sequence[Member], note: Note) -> None:
        """Takes the proposers.

        Args:
            members: at least one proposer, in the order of the indices in draft plans.
            note: called with each proposer's views, drafts and seconds.
        """
        self._members = members
        self._note = note

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, empty if no proposer has one."""
        drafts = [NO_DRAFT] * len(requests)
        waiting = {i: request.draft_plan for i, request in enumerate(requests) if request.draft_plan}
        while waiting:
            at_turn = _next(waiting.values())
            indices, views = [], []
            for i, draft_plan in list(waiting.items()):
                member, length = draft_plan[0]
                if member != at_turn:
                    continue
                view = self._view(requests[i], member, length)
                if view is not None:
                    indices.append(i)
                    views.append(view)
                if requests[i].in_prompt or len(draft_plan) == 1:
                    del waiting[i]
                else:
                    waiting[i] = draft_plan[1:]
            for i, draft in zip(indices, self._propose(at_turn, views), strict=True):
                if draft.token_ids:
                    drafts[i] = draft
                    waiting.pop(i, None)
        return drafts

    def _propose(self, index: int, views: Sequence[RequestView]) -> list[Draft]:
        if not views:
            return []
        start = time.perf_counter()
        drafts = self._members[index].proposer.propose(views)
        self._note(index, views, drafts, time.perf_counter() - start)
        return drafts

    def _view(self, request: RequestView, index: int, length: int) -> RequestView | None:
        """Returns a proposer's view of a request, with up to `length` draft tokens; None if it gets no view."""
        member = self._members[index]
        if request.in_prompt:
            return request if member.keeps_kv else None
        depth = min(request.depth, length)
        count = min(request.num_draft_tokens, length) if member.drafts_trees else depth
        if not depth:
            return None
        if count == request.num_draft_tokens and depth == request.depth:
            return request
        siblings = request.sibling_uniforms
        return request._replace(
            num_draft_tokens=count,
            depth=depth,
            uniforms=request.uniforms[:depth],
            sibling_uniforms=None if siblings is None else siblings[:depth],
        )


def _next(waiting: Collection[DraftPlan]) -> int:
    """Returns the next proposer to call: the next one of some request that no other request may need later."""
    ready = {draft_plan[0][0] for draft_plan in waiting}
    later = {member for draft_plan in waiting for member, _ in draft_plan[1:]}
    return min(ready - later or ready)
