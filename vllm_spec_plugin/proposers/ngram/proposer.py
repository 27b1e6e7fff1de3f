"""The n-gram proposer: one state per request, caught up with the request's text at every step."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.ngram.frequency import FrequencyTables
from vllm_spec_plugin.proposers.ngram.lookup import LookupIndex
from vllm_spec_plugin.proposers.ngram.shared import SharedTexts

Mode = Literal["lookup", "frequency"]
DraftSampling = Literal["greedy", "sample"]


class NgramProposer:
    """Guesses from the request's own prompt and output, without a model.

    With `shared` also from texts that have ended, of requests of the same scope: lookup where they have a longer
    match than the own text, frequency where the own text gives no guess. What is learned of a request is its
    text up to the last step that it was drafted for (of frequency the window), so nothing of one that never was.

    Args:
        mode: "lookup" copies what followed the most recent earlier occurrence of the longest repeated
            suffix; "frequency" chains the most frequent (or drawn) continuations, backing off from
            long to short contexts.
        min_order: in lookup the shortest suffix to look for, in tokens; in frequency the shortest
            n-gram to back off to (1: single tokens without context). At least 1.
        max_order: the longest of the same.
        window: frequency counts the last so many tokens, at least max_order; lookup searches the whole
            text and ignores it.
        draft_sampling: "sample" draws from the counts (frequency only) instead of taking the highest.
        vocab_size: only tokens below it are drafted; others may occur in prompts.
        shared: where texts that have ended are kept; None drafts from the own text only.

    Memory: per request as `LookupIndex` and `FrequencyTables` say, until `forget` or `finish`.
    """

    def __init__(
        self,
        mode: Mode,
        min_order: int,
        max_order: int,
        window: int,
        draft_sampling: DraftSampling,
        vocab_size: int,
        shared: SharedTexts | None = None,
    ) -> None:
        if mode not in ("lookup", "frequency"):
            raise ValueError(f"mode must be 'lookup' or 'frequency', got {mode!r}")
        if draft_sampling not in ("greedy", "sample"):
            raise ValueError(f"draft_sampling must be 'greedy' or 'sample', got {draft_sampling!r}")
        if mode == "lookup" and draft_sampling == "sample":
            raise ValueError("draft_sampling must be 'greedy' in mode 'lookup', got 'sample'")
        if min_order < 1:
            raise ValueError(f"min_order must be at least 1, got {min_order}")
        if max_order < min_order:
            raise ValueError(f"max_order must be at least min_order, {min_order}, got {max_order}")
        if mode == "frequency" and window < max_order:
            raise ValueError(f"window must be at least max_order, {max_order}, got {window}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
        self._mode, self._draft_sampling, self._vocab_size = mode, draft_sampling, vocab_size
        self._min_order, self._max_order, self._window = min_order, max_order, window
        self._shared = shared
        self._states: dict[str, LookupIndex | FrequencyTables] = {}
        # Of the requests that are not private.
        self._scopes: dict[str, str] = {}
        self._compile()

    def _compile(self) -> None:
        """Runs every compiled function once, so that no request waits for the compiler."""
        text, uniforms = np.zeros(4, np.int32), np.zeros(1)
        for point_mass in (False, True):
            self.propose([RequestView("", text, 1, uniforms, point_mass)])
        self.forget("")

    @property
    def num_bytes(self) -> int:
        """Memory held by requests and reserved for texts that have ended, in bytes."""
        shared = 0 if self._shared is None else self._shared.num_bytes
        return shared + sum(state.num_bytes for state in self._states.values())

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request, in order; the first one of a request takes in its whole text."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's counts or index, if there are any."""
        self._states.pop(request_id, None)
        self._scopes.pop(request_id, None)

    def finish(self, request_id: str) -> None:
        """Hands the text of a request that ended to those of its scope, and forgets it."""
        state, scope = self._states.get(request_id), self._scopes.get(request_id)
        self.forget(request_id)
        if self._shared is not None and state is not None and scope is not None:
            self._shared.add(scope, state.text)

    def reset(self) -> None:
        """Forgets all requests and all shared texts."""
        self._states.clear()
        self._scopes.clear()
        if self._shared is not None:
            self._shared.clear()

    def _draft(self, request: RequestView) -> Draft:
        state = self._caught_up(request)
        own = self._own_draft(state, request)
        if self._shared is None or request.scope is None:
            self._scopes.pop(request.request_id, None)
            return own
        self._scopes[request.request_id] = request.scope
        if own.token_ids and not isinstance(state, LookupIndex):
            return own
        matched = state.match_length if isinstance(state, LookupIndex) else 0
        token_ids = self._shared.draft(request.scope, request.token_ids, request.num_draft_tokens, matched)
        return Draft(token_ids) if token_ids else own

    def _own_draft(self, state: LookupIndex | FrequencyTables, request: RequestView) -> Draft:
        if isinstance(state, LookupIndex):
            token_ids, probs = state.draft(request.num_draft_tokens), None
        elif request.point_mass or self._draft_sampling == "greedy":
            token_ids, probs = state.draft_greedy(request.num_draft_tokens), None
        else:
            uniforms = np.array(request.uniforms[: request.num_draft_tokens], np.float64)
            token_ids, probs = state.draft_sampled(uniforms)
        return Draft(token_ids, probs) if token_ids else NO_DRAFT

    def _caught_up(self, request: RequestView) -> LookupIndex | FrequencyTables:
        """The request's state after its whole text, built anew if the text does not continue the old."""
        text, state = request.token_ids, self._states.get(request.request_id)
        consumed = 0 if state is None else state.num_tokens
        stale = consumed > len(text) or (state is not None and consumed and text[consumed - 1] != state.last_token)
        if state is None or stale:
            state, consumed = self._new_state(), 0
            self._states[request.request_id] = state
        if len(text) > consumed:
            # A copy, because compiled code is specialised on writable contiguous arrays.
            state.extend(np.array(text[consumed:], np.int32, order="C"))
        return state

    def _new_state(self) -> LookupIndex | FrequencyTables:
        if self._mode == "lookup":
            return LookupIndex(self._min_order, self._max_order, self._vocab_size)
        return FrequencyTables(self._min_order, self._max_order, self._window, self._vocab_size)
