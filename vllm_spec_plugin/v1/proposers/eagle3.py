"""Drafts with an EAGLE-3 head (Li et al., arXiv 2503.01840), token by token."""

from collections.abc import Sequence
from typing import Protocol

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.engine import DraftEngine
from vllm_spec_plugin.v1.proposers.draft_model.proposer import DraftModelProposer


class States(Protocol):
    """The target's hidden states that are kept, by request."""

    def span(self, request_id: str) -> tuple[int, int]:
        """Returns the position of the first state of a request, and that after the last one; (0, 0) without any."""
        ...

    def drop_before(self, request_id: str, position: int) -> None:
        """Drops the states of positions before `position`."""
        ...

    def forget(self, request_id: str) -> None:
        """Drops all that is known of a request."""
        ...


class Eagle3Engine(DraftEngine, Protocol):
    """Runs the head; token i of a chunk's text is the one after position i.

    Attributes:
        states: the target's hidden states of positions that the head has not computed.
    """

    states: States


class Eagle3Proposer(DraftModelProposer):
    """Drafts as a draft model does, from the target's hidden states.

    The head's entry at position i needs the target's hidden states there and token i + 1. So its text is the request's
    without the first token, and ends where the target's computed positions end. Entries of draft tokens have the head's
    own hidden states in place of the target's: they are computed again once the tokens are accepted.

    A request gets no drafts where hidden states of its text are missing: beyond the head's context, or lost (a part of
    its prompt was in the prefix cache without the head's entries, or there was no room for its states). They cannot be
    computed again, so they are dropped only when all passes that use them have succeeded.
    """

    survives_faults = True
    _engine: Eagle3Engine

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """See `DraftModelProposer`."""
        return super().propose([self._shifted(request) for request in requests])

    def forget(self, request_id: str) -> None:
        """Drops the request's computed positions and hidden states."""
        super().forget(request_id)
        self._engine.states.forget(request_id)

    def _shifted(self, request: RequestView) -> RequestView:
        engine = self._engine
        first, stop = engine.states.span(request.request_id)
        text = request.token_ids[1 : min(stop + 1, len(request.token_ids))]
        known = engine.coverage.watermark(request.request_id, text, engine.block_tables(request.row))
        is_cut = not request.in_prompt and len(text) < len(request.token_ids) - 1
        # The last position is computed again if it is known already.
        if is_cut or not len(text) or min(known, len(text) - 1) < first:
            return request._replace(token_ids=text, num_draft_tokens=0, in_prompt=False)
        return request._replace(token_ids=text)

    def _draft(self, chunks: list[TextChunk]) -> list[tuple[Draft, list[int]]]:
        drafts = [(draft, list[int]()) for draft, _ in super()._draft(chunks)]
        for chunk in chunks:
            self._engine.states.drop_before(chunk.request.request_id, chunk.stop - 1)
        return drafts
