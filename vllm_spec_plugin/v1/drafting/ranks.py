"""Checks that tensor-parallel ranks have the same drafts.

Every rank drafts and keeps its own q and trees; the scheduler gets rank 0's tokens. A fault on one rank would make
ranks verify the same tokens differently, or leave one of them alone in a draft model's all-reduce.
"""

import datetime
import logging
import os
import time
from collections.abc import Sequence
from typing import NoReturn

import torch
import torch.distributed as dist

from vllm_spec_plugin.metrics.counters import RANKS_DIFFER
from vllm_spec_plugin.proposers.base import Draft
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs

logger = logging.getLogger("vllm.vllm_spec_plugin")

# How long a rank with a fault waits for the others, which may wait for it in a pass of the draft model.
SECONDS_AFTER_FAULT = 30.0
SECONDS_BETWEEN_LOGS = 60.0
_PASSES, _END = 0, 1


class RanksDifferError(Exception):
    """The ranks would run different passes of the draft model."""


class RankAgreement:
    """Compares the ranks at two points of a step: before a draft model's passes, and after drafting.

    A rank whose proposer failed skips the passes, so ranks may be at different points: ranks before their passes then
    skip them, and those after drafting wait.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Takes the process group of the ranks: a CPU one, for small messages."""
        self._group = group
        self._same = True
        self._in_passes = self._has_fault = False
        self._last_log = -SECONDS_BETWEEN_LOGS

    def note_fault(self) -> None:
        """Records a proposer's fault on this rank."""
        self._has_fault = True

    def before_passes(self, plan: Sequence[int]) -> None:
        """Returns if all ranks are about to run the same passes with collectives.

        Raises:
            RanksDifferError: they are not; no rank runs its passes.
        """
        point, same = self._meet(_PASSES, hash(tuple(plan)))
        if not (same and point == _PASSES):
            self._same = False
            raise RanksDifferError("the ranks' draft-model inputs differ")
        self._in_passes = True

    def at_end(self, drafts: Sequence[Draft]) -> bool:
        """Whether all ranks have the same drafts, with the same q and trees, from the same passes."""
        digest = draft_digest(drafts)
        while True:
            point, same = self._meet(_END, digest)
            if point == _END:
                break
            self._same = False
        is_same, self._same = self._same and same, True
        self._in_passes = self._has_fault = False
        if not is_same and time.monotonic() - self._last_log >= SECONDS_BETWEEN_LOGS:
            self._last_log = time.monotonic()
            logger.warning(
                "tensor-parallel ranks drafted differently (%s): the step's drafts are dropped on all ranks; look for "
                "a proposer fault that only one rank logged (shown at most once a minute)",
                RANKS_DIFFER,
            )
        return is_same

    def _meet(self, point: int, digest: int) -> tuple[int, bool]:
        """Returns the earliest point of any rank, and whether all are at that point with the same digest."""
        mine = torch.tensor([point, digest, -point, -digest])
        work = dist.all_reduce(mine, dist.ReduceOp.MAX, self._group, async_op=True)
        if not (self._in_passes and self._has_fault):
            work.wait()
        else:
            try:
                work.wait(datetime.timedelta(seconds=SECONDS_AFTER_FAULT))
            except RuntimeError:
                _end_engine()
        max_point, max_digest, min_point, min_digest = mine.tolist()
        return -min_point, max_point == -min_point and max_digest == -min_digest


def _end_engine() -> NoReturn:
    """Ends this process, and so the engine: other ranks wait for it in a collective, which cannot be cancelled."""
    logger.critical(
        "the draft model failed on one tensor-parallel rank only, in the middle of a pass that the others wait in: "
        "the engine ends; see the proposer fault in this log"
    )
    logging.shutdown()
    # Gloo's threads would keep a process that ends in order alive for half an hour.
    os._exit(1)


def draft_digest(drafts: Sequence[Draft]) -> int:
    """Returns a hash of tokens, trees and every bit of q."""
    # Of integers only: their hashes are the same in every process.
    return hash(
        tuple(
            (tuple(draft.token_ids), draft.tree.choices if draft.tree is not None else (), _bits(draft.probs))
            for draft in drafts
        )
    )


def _bits(probs: DraftProbs) -> tuple[int, ...]:
    if probs is None:
        return ()
    if isinstance(probs, SparseProbs):
        return (int(probs.token_ids.sum()), *_bits(probs.probs))
    return (int(probs.float().view(torch.int32).sum()),)
