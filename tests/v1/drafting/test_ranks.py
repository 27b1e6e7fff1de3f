"""Ranks agree on drafts. They are threads here, and a barrier is the process group."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.v1.drafting import ranks
from vllm_spec_plugin.v1.drafting.draft_engine import rank_plan
from vllm_spec_plugin.v1.drafting.ranks import RankAgreement, RanksDifferError, draft_digest
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.verification.draft_probs import SparseProbs
from vllm_spec_plugin.verification.topology import topology

DRAFTS = [Draft([1, 2]), NO_DRAFT, Draft([3])]
OTHERS = [Draft([1, 2]), NO_DRAFT, Draft([4])]


class Group:
    """Takes the place of a process group of threads."""

    def __init__(self, size: int) -> None:
        self._all: list[torch.Tensor] = []
        self._result = torch.empty(0)
        self._barrier = threading.Barrier(size, self._reduce)

    def _reduce(self) -> None:
        self._result = torch.stack(self._all).amax(0)
        self._all = []

    def all_reduce(self, mine: torch.Tensor) -> "Work":
        self._all.append(mine.clone())
        return Work(self, mine)


class Work:
    """A reduction that is under way."""

    def __init__(self, group: Group, mine: torch.Tensor) -> None:
        self._group, self._mine = group, mine

    def wait(self, timeout: Any = None) -> None:
        try:
            self._group._barrier.wait(timeout.total_seconds() if timeout else 10)
        except threading.BrokenBarrierError:
            raise RuntimeError("timed out") from None
        self._mine.copy_(self._group._result)


def run(monkeypatch: pytest.MonkeyPatch, *parts: Callable[[RankAgreement], Any]) -> list[Any]:
    """The results of one part per rank."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda mine, op, group, async_op: group.all_reduce(mine))
    group: Any = Group(len(parts))
    with ThreadPoolExecutor(len(parts)) as pool:
        return [future.result() for future in [pool.submit(part, RankAgreement(group)) for part in parts]]


def draft(agreement: RankAgreement, plan: list[int], drafts: list[Draft]) -> bool:
    """A step with a draft model."""
    try:
        agreement.before_passes(plan)
    except RanksDifferError:
        drafts = [NO_DRAFT] * len(drafts)
    return agreement.at_end(drafts)


def test_ranks_with_other_drafts_do_not_agree_and_do_in_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(*drafts: list[Draft]) -> Callable[[RankAgreement], list[bool]]:
        return lambda rank: [rank.at_end(step) for step in drafts]

    assert run(monkeypatch, steps(DRAFTS, DRAFTS), steps(OTHERS, DRAFTS)) == [[False, True]] * 2
    assert run(monkeypatch, *[lambda rank: draft(rank, [0, 4], DRAFTS)] * 3) == [True] * 3


def test_no_rank_runs_passes_that_another_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failed before its passes and is at the end already: the others come there without theirs."""
    failed, planned = (lambda rank: rank.at_end([NO_DRAFT])), (lambda rank: draft(rank, [1], [Draft([5])]))
    assert run(monkeypatch, failed, planned, planned) == [False] * 3


def test_a_rank_that_failed_in_passes_of_others_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one never comes to the end of the step."""

    class EndedError(Exception):
        pass

    def end(status: int) -> None:
        raise EndedError(status)

    monkeypatch.setattr(ranks, "SECONDS_AFTER_FAULT", 0.1)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(logging, "shutdown", lambda: None)

    def fail(rank: RankAgreement) -> None:
        rank.before_passes([1])
        rank.note_fault()
        with pytest.raises(EndedError):
            rank.at_end([NO_DRAFT])

    run(monkeypatch, fail, lambda rank: rank.before_passes([1]))


def test_digest_tells_tokens_trees_and_q_apart() -> None:
    q = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    next_q = q.clone()
    next_q[0, 0] = torch.nextafter(q[0, 0], torch.tensor(1.0))
    ids = torch.tensor([[0, 1], [1, 0]])
    tree = topology([(0,), (1,)])
    drafts = [
        NO_DRAFT,
        Draft([1, 0]),
        Draft([0, 1]),
        Draft([1, 0], q),
        Draft([1, 0], next_q),
        Draft([1, 0], SparseProbs(ids, q)),
        Draft([1, 0], SparseProbs(ids + 1, q)),
        Draft([1, 0], None, tree),
    ]
    assert len({draft_digest([draft]) for draft in drafts}) == len(drafts)
    assert draft_digest([Draft([1]), NO_DRAFT]) != draft_digest([NO_DRAFT, Draft([1])])
    assert draft_digest([Draft([1, 0], q)]) == draft_digest([Draft([1, 0], q.clone())])


def plan_of(*chunks: tuple[int, int, int, int]) -> list[int]:
    """Builds the compared plan of chunks, each a row, its first and last position and its draft length."""
    given = []
    for row, start, stop, length in chunks:
        view = RequestView(f"r{row}", np.zeros(stop, np.int32), length, np.zeros(length), row=row)
        given.append(TextChunk(view, start, stop, length, []))
    return rank_plan(given)


@pytest.mark.parametrize("other", [(1, 3, 7, 4), (0, 2, 7, 4), (0, 3, 8, 4), (0, 3, 7, 3)])
def test_ranks_compare_rows_positions_and_draft_lengths(other: tuple[int, int, int, int]) -> None:
    """With any other of them, a rank would run other passes, or a collective more than the others."""
    assert plan_of((2, 0, 5, 4), (0, 3, 7, 4)) == plan_of((2, 0, 5, 4), (0, 3, 7, 4))
    assert plan_of((2, 0, 5, 4), (0, 3, 7, 4)) != plan_of((2, 0, 5, 4), other)
