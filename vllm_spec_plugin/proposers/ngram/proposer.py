"""The n-gram proposer: one index or table of counts per request, updated at every step."""

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
    """Drafts from the request's own prompt and output, without a model.

    With `shared` also from finished texts of the same scope: lookup if they have a longer match than the own text,
    frequency if the own text gives no draft. A finished request's text is kept up to its last step with a draft
    (frequency: the window).

    Args:
        mode: "lookup" copies the continuation of the latest earlier occurrence of the longest repeated suffix;
            "frequency" chains the most frequent (or sampled) continuations, backing off from long to short contexts.
        min_order: minimum length of suffix (lookup) or n-gram (frequency), in tokens, at least 1.
        max_order: maximum length, in tokens.
        window: number of last tokens that frequency counts, at least max_order; lookup ignores it.
        draft_sampling: "sample" samples by the counts (frequency only); "greedy" takes the highest.
        vocab_size: size of the vocabulary; only tokens below are drafted, others may occur in prompts.
        shared: store of finished texts; None drafts from the own text only.

    Memory: see `LookupIndex` and `FrequencyTables`, per request until `forget` or `finish`.

    Raises:
        ValueError: an argument is not allowed.
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
        # Scope of each request with one.
        self._scopes: dict[str, str] = {}
        self._compile()

    def _compile(self) -> None:
        """Compiles all functions, so that no request waits for the compiler."""
        text, uniforms = np.zeros(4, np.int32), np.zeros(1)
        for point_mass in (False, True):
            self.propose([RequestView("", text, 1, uniforms, point_mass)])
        self.forget("")

    @property
    def num_bytes(self) -> int:
        """Memory of requests and of the store of finished texts, in bytes."""
        shared = 0 if self._shared is None else self._shared.num_bytes
        return shared + sum(state.num_bytes for state in self._states.values())

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order; the first one of a request indexes its whole text."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's counts or index."""
        self._states.pop(request_id, None)
        self._scopes.pop(request_id, None)

    def finish(self, request_id: str) -> None:
        """Keeps a finished request's text for its scope, and drops its state."""
        state, scope = self._states.get(request_id), self._scopes.get(request_id)
        self.forget(request_id)
        if self._shared is not None and state is not None and scope is not None:
            self._shared.add(scope, state.text)

    def reset(self) -> None:
        """Drops all requests and all finished texts."""
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
        """Returns the request's state after its whole text; rebuilds it if the text does not continue the old one."""
        text, state = request.token_ids, self._states.get(request.request_id)
        consumed = 0 if state is None else state.num_tokens
        stale = consumed > len(text) or (state is not None and consumed and text[consumed - 1] != state.last_token)
        if state is None or stale:
            state, consumed = self._new_state(), 0
            self._states[request.request_id] = state
        if len(text) > consumed:
            # A copy: compiled code is specialised on writable contiguous arrays.
            state.extend(np.array(text[consumed:], np.int32, order="C"))
        return state

    def _new_state(self) -> LookupIndex | FrequencyTables:
        if self._mode == "lookup":
            return LookupIndex(self._min_order, self._max_order, self._vocab_size)
        return FrequencyTables(self._min_order, self._max_order, self._window, self._vocab_size)
