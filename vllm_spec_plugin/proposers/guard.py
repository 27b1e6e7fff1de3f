"""Guards the engine against faulty proposers: a fault costs drafts only."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from vllm_spec_plugin.metrics.counters import (
    BAD_PROBS,
    OUT_OF_VOCABULARY,
    RAISED,
    TOO_MANY_TOKENS,
    WRONG_COUNT,
    WRONG_TREE,
    WRONG_TYPE,
)
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, Proposer, RequestView
from vllm_spec_plugin.verification.draft_probs import SparseProbs, stack_rows, stack_sparse
from vllm_spec_plugin.verification.topology import Topology

logger = logging.getLogger("vllm.vllm_spec_plugin")


SECONDS_BETWEEN_LOGS = 60.0
# A softmax in float32 over 152,064 tokens sums up to 1 but for 3e-5; a rounding to bfloat16 changes q by more.
_SUM_TOLERANCE = 2e-4
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class GuardedProposer:
    """Wraps a proposer: its faults are counted and logged, and give no draft."""

    def __init__(
        self, proposer: Proposer, vocab_size: int, on_error: Callable[[str], None], method: str = "proposer"
    ) -> None:
        """Wraps `proposer`.

        Args:
            proposer: any proposer.
            vocab_size: size of the vocabulary; draft tokens must be below.
            on_error: called with one of `PROPOSER_ERRORS` per lost draft, or per step if all are lost.
            method: the proposer's method, for messages.
        """
        self._proposer = proposer
        self._vocab_size = vocab_size
        self._on_error = on_error
        self._method = method
        self._last_log, self._num_unlogged = -SECONDS_BETWEEN_LOGS, 0

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one valid draft per request; `NO_DRAFT` in place of each invalid one."""
        try:
            drafts = list(self._proposer.propose(requests))
            if len(drafts) != len(requests):
                raise _FaultError(WRONG_COUNT, f"{len(drafts)} drafts for {len(requests)} requests")
        except Exception as error:
            reason = error.reason if isinstance(error, _FaultError) else RAISED
            self._report(reason, f"no drafts in this step: {type(error).__name__}: {error}")
            if not getattr(self._proposer, "survives_faults", False):
                # Its state may be inconsistent: rebuild it from the requests' texts.
                for request in requests:
                    self.forget(request.request_id)
            return [NO_DRAFT] * len(requests)
        checked = [self._checked(request, draft) for request, draft in zip(requests, drafts, strict=True)]
        drawn = {i: draft.probs for i, draft in enumerate(checked) if draft.probs is not None}
        if drawn and not self._are_sound(*drawn.values()):
            for i, probs in drawn.items():
                if not self._are_sound(probs):
                    self._drop(requests[i], BAD_PROBS, "q is not a distribution over the vocabulary")
                    checked[i] = NO_DRAFT
        # Verifying a drawn token as certain is exact as well.
        for i in drawn:
            if requests[i].point_mass:
                checked[i] = replace(checked[i], probs=None)
        return checked

    def _are_sound(self, *probs: SparseProbs | torch.Tensor) -> bool:
        try:
            return are_sound(probs, self._vocab_size)
        except Exception:  # tensors of several devices, or without an element: each is looked at by itself
            return False

    def forget(self, request_id: str) -> None:
        """Drops the proposer's state of that request."""
        try:
            self._proposer.forget(request_id)
        except Exception as error:
            self._report(RAISED, f"forgetting a request: {type(error).__name__}: {error}")

    def attempt(self, work: Callable[[], None], name: str) -> bool:
        """Does work for the proposer outside of drafting; False after a fault, which is reported under that name."""
        try:
            work()
        except Exception as error:
            self._report(RAISED, f"{name}: {type(error).__name__}: {error}")
            return False
        return True

    def finish(self, request_id: str) -> None:
        """Calls the proposer's `finish` for a request that has ended, or `forget` if it has none."""
        finish: Callable[[str], None] | None = getattr(self._proposer, "finish", None)
        if finish is None:
            self.forget(request_id)
            return
        try:
            finish(request_id)
        except Exception as error:
            self._report(RAISED, f"finishing a request: {type(error).__name__}: {error}")
            self.forget(request_id)

    def reset(self, request_ids: Sequence[str]) -> None:
        """Calls the proposer's `reset`, or `forget` for these requests if it has none."""
        reset: Callable[[], None] | None = getattr(self._proposer, "reset", None)
        if reset is not None:
            try:
                reset()
            except Exception as error:
                self._report(RAISED, f"forgetting all requests: {type(error).__name__}: {error}")
        for request_id in request_ids:
            self.forget(request_id)

    def _checked(self, request: RequestView, draft: Draft) -> Draft:
        try:
            return check_draft(draft, request, self._vocab_size)
        except Exception as error:
            self._drop(request, error.reason if isinstance(error, _FaultError) else RAISED, str(error))
            return NO_DRAFT

    def _drop(self, request: RequestView, reason: str, message: str) -> None:
        self._report(reason, f"draft of request {request.request_id} dropped: {message}")

    def _report(self, reason: str, message: str) -> None:
        """Counts a fault; logs it with the traceback of the exception that is handled, if there is one."""
        self._on_error(reason)
        now = time.monotonic()
        if now - self._last_log < SECONDS_BETWEEN_LOGS:
            self._num_unlogged += 1
            return
        logger.warning(
            "proposer fault: method %s, reason %s: %s; drafts lost, outputs not affected; %d more faults since the "
            "last such message (at most one a minute)",
            self._method,
            reason,
            message,
            self._num_unlogged,
            exc_info=sys.exception() is not None,
        )
        self._last_log, self._num_unlogged = now, 0


class _FaultError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def check_draft(draft: Draft, request: RequestView, vocab_size: int) -> Draft:
    """Checks everything about a draft but the values of its q; raises if it cannot be verified exactly.

    Returns:
        The draft in the types of the verification: a list of ints, float32 q.
    """
    if not isinstance(draft, Draft):
        raise _FaultError(WRONG_TYPE, f"got {type(draft).__name__}, not a Draft")
    tokens, tree = _token_ids(draft.token_ids), draft.tree
    if len(tokens) > request.num_draft_tokens:
        raise _FaultError(TOO_MANY_TOKENS, f"{len(tokens)} draft tokens, at most {request.num_draft_tokens} allowed")
    if tree is not None:
        if not isinstance(tree, Topology):
            raise _FaultError(WRONG_TYPE, f"tree is {type(tree).__name__}, not a Topology")
        if tree.num_nodes != len(tokens):
            raise _FaultError(WRONG_TREE, f"{len(tokens)} tokens for a tree of {tree.num_nodes} nodes")
        if tree.depth > request.depth:
            raise _FaultError(WRONG_TREE, f"a tree of depth {tree.depth}, at most {request.depth} allowed")
        if request.chain_only and len(tree.chains) > 1:
            raise _FaultError(WRONG_TREE, "a tree with branches where only a chain is allowed")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        raise _FaultError(OUT_OF_VOCABULARY, f"token ids {tokens} with a vocabulary of {vocab_size}")
    probs = None if draft.probs is None or not tokens else _probs(draft.probs, len(tokens), vocab_size)
    return Draft(tokens, probs, tree, draft.kinds if len(draft.kinds) == len(tokens) else ())


def _token_ids(given: Any) -> list[int]:
    """Converts any sequence, array or tensor of integers to token ids; refuses bools and floats."""
    values = given.tolist() if isinstance(given, np.ndarray | torch.Tensor) else given
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise _FaultError(WRONG_TYPE, f"token_ids is {type(given).__name__}")
    kinds = set(map(type, values))
    if kinds <= {int}:
        # A copy: a proposer may use its list again.
        return list(values)
    for kind in kinds:
        if kind is not int and not issubclass(kind, np.integer):
            raise _FaultError(WRONG_TYPE, f"a token id is {kind.__name__}")
    return [int(value) for value in values]


def _probs(given: Any, num_tokens: int, vocab_size: int) -> SparseProbs | torch.Tensor:
    """Converts q to the types of the verification."""
    values = given.probs if isinstance(given, SparseProbs) else given
    if not isinstance(values, torch.Tensor) or values.layout != torch.strided or not values.is_floating_point():
        raise _FaultError(WRONG_TYPE, f"q is {type(values).__name__}, not a dense tensor of floats")
    shape = values.shape
    if len(shape) != 2 or shape[0] != num_tokens:
        raise _FaultError(BAD_PROBS, f"q of shape {tuple(shape)} for {num_tokens} tokens")
    is_ready = values.dtype == torch.float32 and not values.requires_grad
    values = values if is_ready else values.detach().float()
    if isinstance(given, SparseProbs):
        ids = given.token_ids
        if not isinstance(ids, torch.Tensor) or ids.dtype not in _WHOLE or ids.device != values.device:
            raise _FaultError(WRONG_TYPE, "q's token ids are not integers, or on another device")
        if ids.shape != shape:
            raise _FaultError(BAD_PROBS, f"q of shape {tuple(shape)} for token ids of shape {tuple(ids.shape)}")
        return given if is_ready and ids.dtype == torch.int64 else SparseProbs(ids.long(), values)
    if shape[1] != vocab_size:
        raise _FaultError(BAD_PROBS, f"q has {shape[1]} entries with a vocabulary of {vocab_size}")
    return values


def are_sound(probs: Sequence[SparseProbs | torch.Tensor], vocab_size: int) -> bool:
    """Whether every row of q is a distribution over the vocabulary, each token in it once; the device is read once.

    Args:
        probs: q of drafts, in the types of the verification.
        vocab_size: size of the vocabulary; token ids must be below.
    """
    sparse = [q for q in probs if isinstance(q, SparseProbs)]
    dense = [q for q in probs if isinstance(q, torch.Tensor)]
    if dense and not bool(_are_distributions(stack_rows(dense))):
        return False
    if not sparse:
        return True
    table = stack_sparse(sparse)
    lowest, highest = table.token_ids.aminmax()
    in_range = bool(_are_distributions(table.probs) & (lowest >= 0) & (highest < vocab_size))
    return in_range and not _has_twice(table)


def _has_twice(table: SparseProbs) -> bool:
    """Whether a row has a token twice: block verification compares p with each entry, not with their sum."""
    # Padding may repeat a token; below 0, all entries differ. In numpy: torch takes 7 times as long to sort.
    padding = -1 - np.arange(table.probs.shape[1])
    tokens = np.where(table.probs.cpu().numpy() > 0, table.token_ids.cpu().numpy(), padding)
    tokens.sort(-1)
    return bool((tokens[:, 1:] == tokens[:, :-1]).any())


def _are_distributions(probs: torch.Tensor) -> torch.Tensor:
    # A sum over numbers that are not finite is not finite either, and no comparison with it is true.
    return (((probs.sum(-1) - 1).abs() <= _SUM_TOLERANCE) & (probs.amin(-1) >= 0)).all()
