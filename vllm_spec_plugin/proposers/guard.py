"""Keeping a faulty proposer from costing more than its drafts. Imports no vLLM."""

import logging
import time
from collections.abc import Callable, Sequence

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, Proposer, RequestView
from vllm_spec_plugin.verification.draft_probs import SparseProbs

logger = logging.getLogger("vllm.vllm_spec_plugin")

RAISED = "raised"
WRONG_COUNT = "wrong_number_of_drafts"
TOO_MANY_TOKENS = "too_many_tokens"
WRONG_TREE = "wrong_tree"
OUT_OF_VOCABULARY = "token_out_of_vocabulary"
BAD_PROBS = "bad_probabilities"
ERROR_REASONS = (RAISED, WRONG_COUNT, TOO_MANY_TOKENS, WRONG_TREE, OUT_OF_VOCABULARY, BAD_PROBS)

SECONDS_BETWEEN_LOGS = 60.0
_SUM_TOLERANCE = 1e-3


class GuardedProposer:
    """A proposer whose faults are counted, logged now and then, and answered with no draft."""

    def __init__(self, proposer: Proposer, vocab_size: int, on_error: Callable[[str], None]) -> None:
        """Wraps `proposer`.

        Args:
            proposer: any proposer.
            vocab_size: draft tokens must be below.
            on_error: called with one of `ERROR_REASONS` per draft, or per step where all are lost.
        """
        self._proposer = proposer
        self._vocab_size = vocab_size
        self._on_error = on_error
        self._last_log: dict[str, float] = {}

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One sound draft per request; `NO_DRAFT` in the place of each unsound one."""
        try:
            drafts = self._proposer.propose(requests)
            if len(drafts) != len(requests):
                raise _FaultError(WRONG_COUNT, f"{len(drafts)} drafts for {len(requests)} requests")
        except Exception as error:
            reason = error.reason if isinstance(error, _FaultError) else RAISED
            self._report(reason, f"no drafts in this step: {type(error).__name__}: {error}")
            # Its state may be half updated: let it start again from the requests' texts.
            for request in requests:
                self.forget(request.request_id)
            return [NO_DRAFT] * len(requests)
        return [self._checked(request, draft) for request, draft in zip(requests, drafts, strict=True)]

    def forget(self, request_id: str) -> None:
        """Drops the proposer's state of that request."""
        try:
            self._proposer.forget(request_id)
        except Exception as error:
            self._report(RAISED, f"forgetting a request: {type(error).__name__}: {error}")

    def finish(self, request_id: str) -> None:
        """Tells the proposer that the request ended; one that does not ask for that forgets it."""
        finish: Callable[[str], None] | None = getattr(self._proposer, "finish", None)
        if finish is None:
            self.forget(request_id)
            return
        try:
            finish(request_id)
        except Exception as error:
            self._report(RAISED, f"finishing a request: {type(error).__name__}: {error}")
            self.forget(request_id)

    def _checked(self, request: RequestView, draft: Draft) -> Draft:
        try:
            check_draft(draft, request, self._vocab_size)
        except Exception as error:
            reason = error.reason if isinstance(error, _FaultError) else RAISED
            self._report(reason, f"draft of request {request.request_id} dropped: {error}")
            return NO_DRAFT
        return draft

    def _report(self, reason: str, message: str) -> None:
        self._on_error(reason)
        now = time.monotonic()
        if now - self._last_log.get(reason, -SECONDS_BETWEEN_LOGS) >= SECONDS_BETWEEN_LOGS:
            self._last_log[reason] = now
            logger.warning("proposer fault (%s), shown at most once a minute: %s", reason, message)


class _FaultError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def check_draft(draft: Draft, request: RequestView, vocab_size: int) -> None:
    """Raises unless `draft` is one that the scorer can verify exactly."""
    tokens, probs = draft.token_ids, draft.probs
    if len(tokens) > request.num_draft_tokens:
        raise _FaultError(TOO_MANY_TOKENS, f"{len(tokens)} tokens where {request.num_draft_tokens} were asked for")
    if draft.tree is not None:
        if draft.tree.num_nodes != len(tokens):
            raise _FaultError(WRONG_TREE, f"{len(tokens)} tokens for a tree of {draft.tree.num_nodes} nodes")
        if draft.tree.depth > request.depth:
            raise _FaultError(WRONG_TREE, f"a tree of depth {draft.tree.depth} where {request.depth} is the most")
        if request.chain_only and len(draft.tree.chains) > 1:
            raise _FaultError(WRONG_TREE, "a tree with branches where a chain was asked for")
    if any(not 0 <= token < vocab_size for token in tokens):
        raise _FaultError(OUT_OF_VOCABULARY, f"token ids {tokens} with a vocabulary of {vocab_size}")
    if probs is None or not tokens:
        return
    values = probs.probs if isinstance(probs, SparseProbs) else probs
    if len(probs) != len(tokens):
        raise _FaultError(BAD_PROBS, f"{len(probs)} rows of q for {len(tokens)} tokens")
    if isinstance(probs, SparseProbs):
        in_range = (probs.token_ids >= 0) & (probs.token_ids < vocab_size)
        if probs.token_ids.shape != values.shape or not bool(in_range.all()):
            raise _FaultError(BAD_PROBS, "q names tokens out of the vocabulary")
    elif values.shape[1] != vocab_size:
        raise _FaultError(BAD_PROBS, f"q has {values.shape[1]} entries with a vocabulary of {vocab_size}")
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise _FaultError(BAD_PROBS, "q is negative or not finite")
    if bool(((values.sum(-1) - 1).abs() > _SUM_TOLERANCE).any()):
        raise _FaultError(BAD_PROBS, "q does not sum to 1")
