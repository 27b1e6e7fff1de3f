"""The suffix proposer: one tree per request, extended at every step."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.suffix.store import Generation, Match, TextStore
from vllm_spec_plugin.proposers.suffix.text_tree import TextTree


class _Request:
    """State of a request: its tree, its scope, and its matches with finished texts."""

    def __init__(self, vocab_size: int) -> None:
        self.tree = TextTree(vocab_size)
        self.scope: str | None = None
        self.matches: dict[Generation, Match] = {}


class SuffixProposer:
    """Drafts the most frequent continuation of the longest match.

    The match is the longest suffix of the request's text that occurred before, in the text itself or, with a store, in
    finished texts of its scope. Of equally long matches the own text's comes first, then that of the newest texts.

    Args:
        min_order: minimum match length, in tokens, at least 1.
        min_probability: a draft ends before its probability, by counts and match length, falls below this.
        vocab_size: size of the vocabulary; only tokens below are drafted, others may occur in prompts.
        store: store of finished texts; None drafts from the own text only.

    Memory: see `TextTree`, per request until `forget` or `finish`.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        min_order: int,
        min_probability: float,
        vocab_size: int,
        store: TextStore | None = None,
    ) -> None:
        if min_order < 1:
            raise ValueError(f"min_order must be at least 1, got {min_order}")
        if not 0 <= min_probability < 1:
            raise ValueError(f"min_probability must be at least 0 and below 1, got {min_probability}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
        self._min_order, self._min_probability, self._vocab_size = min_order, min_probability, vocab_size
        self._store = store
        self._requests: dict[str, _Request] = {}
        self._compile()

    def _compile(self) -> None:
        """Compiles all functions, so that no request waits for the compiler."""
        self.propose([RequestView("", np.zeros(256, np.int32), 1, np.zeros(1), scope="")])
        self.reset()

    @property
    def num_bytes(self) -> int:
        """Memory of requests and finished texts, in bytes."""
        stored = 0 if self._store is None else self._store.num_bytes
        return stored + sum(request.tree.num_bytes for request in self._requests.values())

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order; the first one of a request indexes its whole text."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's tree and matches."""
        self._requests.pop(request_id, None)

    def finish(self, request_id: str) -> None:
        """Keeps a finished request's text for its scope, and drops its state."""
        request = self._requests.pop(request_id, None)
        if self._store is not None and request is not None and request.scope is not None:
            self._store.add(request.scope, request.tree.text)

    def reset(self) -> None:
        """Drops all requests and all finished texts."""
        self._requests.clear()
        if self._store is not None:
            self._store.clear()

    def _draft(self, view: RequestView) -> Draft:
        request = self._caught_up(view)
        own = request.tree
        request.scope = view.scope
        tree, matched, (node, length) = own, own.num_matched, own.match_end()
        if self._store is not None and view.scope is not None:
            found = self._longest_shared(self._store, request, view.scope, max(matched + 1, self._min_order))
            if found is not None:
                tree, matched, (node, length) = found
        if matched < self._min_order:
            return NO_DRAFT
        token_ids = tree.draft_after(node, length, own, view.num_draft_tokens, self._min_probability)
        return Draft(token_ids) if token_ids else NO_DRAFT

    def _longest_shared(
        self, store: TextStore, request: _Request, scope: str, min_length: int
    ) -> tuple[TextTree, int, tuple[int, int]] | None:
        """Finds the longest match of at least `min_length` tokens; returns its tree, length, and node with length."""
        matches, found = {}, None
        for generation in store.generations(scope):
            match = matches[generation] = request.matches.get(generation) or Match()
            matched = store.match(generation, match, request.tree)
            if matched >= min_length:
                found, min_length = generation, matched
        # Without matches of generations that were dropped.
        request.matches = matches
        if found is None:
            return None
        store.used(found)
        node, length = matches[found].at.tolist()
        return found.tree, min_length, (node, length)

    def _caught_up(self, view: RequestView) -> _Request:
        """Returns the request's state after its whole text; rebuilds it if the text does not continue the old one."""
        text, request = view.token_ids, self._requests.get(view.request_id)
        consumed = 0 if request is None else request.tree.num_tokens
        if request is None or consumed > len(text) or (consumed and text[consumed - 1] != request.tree.text[-1]):
            request, consumed = _Request(self._vocab_size), 0
            self._requests[view.request_id] = request
        if len(text) > consumed:
            # A copy: compiled code is specialised on writable contiguous arrays.
            request.tree.extend(np.array(text[consumed:], np.int32, order="C"))
        return request
