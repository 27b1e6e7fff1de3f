"""Several proposers that take turns: for each request the first that has a guess."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, Proposer, RequestView
from vllm_spec_plugin.turns import Turns


@dataclass(frozen=True)
class Member:
    """One of the proposers.

    Attributes:
        proposer: which.
        drafts_trees: whether its drafts may have more tokens than may follow each other.
        keeps_kv: whether it computes texts, and so is shown those that are not through.
    """

    proposer: Proposer
    drafts_trees: bool = False
    keeps_kv: bool = False


# Which member drafted for which requests, what came of it, and how many seconds it took.
Note = Callable[[int, Sequence[RequestView], Sequence[Draft], float], None]


class Cascade:
    """Asks each request's proposers in the order of its turns, until one has a guess.

    All requests of a step that come to a proposer come to it together where their turns allow it: the passes of a
    draft model are shared. Whether a proposer has a guess must not depend on tokens that it drew.

    A text that is not through is shown to the first of its proposers only, if that keeps KV: whoever comes later
    catches up when its turn comes.
    """

    def __init__(self, members: Sequence[Member], note: Note) -> None:
        """Takes the proposers, by which turns number them.

        Args:
            members: at least one.
            note: told of each one's work, with the views that it was shown.
        """
        self._members = members
        self._note = note

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request, empty where nobody had a guess."""
        drafts = [NO_DRAFT] * len(requests)
        waiting = {place: request.turns for place, request in enumerate(requests) if request.turns}
        while waiting:
            at_turn = _next(waiting.values())
            places, views = [], []
            for place, turns in list(waiting.items()):
                member, length = turns[0]
                if member != at_turn:
                    continue
                view = self._view(requests[place], member, length)
                if view is not None:
                    places.append(place)
                    views.append(view)
                if requests[place].in_prompt or len(turns) == 1:
                    del waiting[place]
                else:
                    waiting[place] = turns[1:]
            for place, draft in zip(places, self._ask(at_turn, views), strict=True):
                if draft.token_ids:
                    drafts[place] = draft
                    waiting.pop(place, None)
        return drafts

    def _ask(self, place: int, views: Sequence[RequestView]) -> list[Draft]:
        if not views:
            return []
        start = time.perf_counter()
        drafts = self._members[place].proposer.propose(views)
        self._note(place, views, drafts, time.perf_counter() - start)
        return drafts

    def _view(self, request: RequestView, place: int, length: int) -> RequestView | None:
        """What a proposer is shown of a request of which it may draft `length` tokens; None if it is not asked."""
        member = self._members[place]
        if request.in_prompt:
            return request if member.keeps_kv else None
        depth = min(request.depth, length)
        count = min(request.num_draft_tokens, length) if member.drafts_trees else depth
        if not depth:
            return None
        if count == request.num_draft_tokens and depth == request.depth:
            return request
        siblings = request.sibling_uniforms
        return replace(
            request,
            num_draft_tokens=count,
            depth=depth,
            uniforms=request.uniforms[:depth],
            sibling_uniforms=None if siblings is None else siblings[:depth],
        )


def _next(waiting: Collection[Turns]) -> int:
    """Whose turn it is: of those that are the next ones for anybody, one that nobody else may come to later."""
    ready = {turns[0][0] for turns in waiting}
    later = {member for turns in waiting for member, _ in turns[1:]}
    return min(ready - later or ready)
