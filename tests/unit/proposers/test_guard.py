"""A proposer's faults cost its drafts and nothing else."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.proposers import guard
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.verification.draft_probs import SparseProbs
from vllm_spec_plugin.verification.topology import chain, topology

VOCAB = 10


class Scripted:
    """Answers with what it was told to."""

    def __init__(self, answer):
        self.answer = answer
        self.forgotten = []

    def propose(self, requests):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def forget(self, request_id):
        self.forgotten.append(request_id)


def view(request_id="a", k=2):
    return RequestView(request_id, np.arange(3, dtype=np.int32), k, np.zeros(k))


def propose(answer, requests=None):
    errors: list[str] = []
    proposer = Scripted(answer)
    drafts = GuardedProposer(proposer, VOCAB, errors.append).propose(requests or [view()])
    return drafts, errors, proposer


SOUND = Draft([1, 2], torch.full((2, VOCAB), 0.1))
NO_IDS: Any = ["x"]
NAN = torch.full((1, VOCAB), float("nan"))


def test_sound_drafts_pass():
    drafts, errors, _ = propose([SOUND])
    assert drafts[0] is SOUND
    assert errors == []


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (Draft([1, 2, 3]), guard.TOO_MANY_TOKENS),
        (Draft([VOCAB]), guard.OUT_OF_VOCABULARY),
        (Draft([-1]), guard.OUT_OF_VOCABULARY),
        (Draft([1], NAN), guard.BAD_PROBS),
        (Draft([1], torch.full((1, VOCAB), 0.3)), guard.BAD_PROBS),
        (Draft([1], torch.full((2, VOCAB), 0.1)), guard.BAD_PROBS),
        (Draft([1], torch.full((1, 4), 0.25)), guard.BAD_PROBS),
        (Draft([1], torch.tensor([[1.5, -0.5] + [0.0] * 8])), guard.BAD_PROBS),
        (Draft([1], SparseProbs(torch.tensor([[1, VOCAB]]), torch.tensor([[0.5, 0.5]]))), guard.BAD_PROBS),
        (Draft([1], SparseProbs(torch.tensor([[1]]), torch.tensor([[float("inf")]]))), guard.BAD_PROBS),
        (Draft(NO_IDS), guard.RAISED),
    ],
)
def test_an_unsound_draft_is_dropped_and_counted_alone(draft, reason):
    drafts, errors, _ = propose([draft, SOUND], [view("a"), view("b")])
    assert drafts[0] is NO_DRAFT
    assert drafts[1] is SOUND
    assert errors == [reason]


FORK = topology([[0], [1], [0, 0]])


def tree_view(**more):
    given = {"num_draft_tokens": 4, "depth": 2} | more
    return RequestView("a", np.arange(3, dtype=np.int32), uniforms=np.zeros(4), **given)


@pytest.mark.parametrize(
    ("draft", "request_view"),
    [
        (Draft([1, 2, 3], None, FORK), tree_view()),
        (Draft([1, 2, 3], torch.full((3, VOCAB), 0.1), FORK), tree_view()),
        (Draft([1, 2], None, chain(2)), tree_view(chain_only=True)),
        (Draft([], None, chain(0)), tree_view(num_draft_tokens=0, depth=0)),
    ],
)
def test_sound_trees_pass(draft, request_view):
    drafts, errors, _ = propose([draft], [request_view])
    assert drafts[0] is draft
    assert errors == []


@pytest.mark.parametrize(
    ("draft", "request_view", "reason"),
    [
        (Draft([1, 2], None, FORK), tree_view(), guard.WRONG_TREE),
        (Draft([1, 2, 3, 4], None, FORK), tree_view(), guard.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), tree_view(depth=1), guard.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), tree_view(chain_only=True), guard.WRONG_TREE),
        (Draft([1, 2, 3], None, chain(3)), tree_view(), guard.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), tree_view(num_draft_tokens=2), guard.TOO_MANY_TOKENS),
        (Draft([1, 2, 3], torch.full((2, VOCAB), 0.1), FORK), tree_view(), guard.BAD_PROBS),
    ],
)
def test_a_tree_that_does_not_fit_its_tokens_or_the_request_is_dropped(draft, request_view, reason):
    drafts, errors, _ = propose([draft], [request_view])
    assert drafts == [NO_DRAFT]
    assert errors == [reason]
    assert reason in guard.ERROR_REASONS


def test_a_raising_proposer_loses_the_step_and_its_state():
    drafts, errors, proposer = propose(RuntimeError("boom"), [view("a"), view("b")])
    assert drafts == [NO_DRAFT, NO_DRAFT]
    assert errors == [guard.RAISED]
    assert proposer.forgotten == ["a", "b"]


def test_a_wrong_number_of_drafts_loses_the_step():
    drafts, errors, _ = propose([SOUND, SOUND], [view()])
    assert drafts == [NO_DRAFT]
    assert errors == [guard.WRONG_COUNT]


class Learning(Scripted):
    """Wants to know which requests ended."""

    def __init__(self, error=None):
        super().__init__([])
        self.finished, self.error = [], error

    def finish(self, request_id):
        self.finished.append(request_id)
        if self.error:
            raise self.error


def test_a_request_that_ended_is_finished_where_the_proposer_asks_for_that_else_forgotten():
    learning, other = Learning(), Scripted([])
    for proposer in (learning, other):
        GuardedProposer(proposer, VOCAB, pytest.fail).finish("a")
    assert (learning.finished, learning.forgotten) == (["a"], [])
    assert other.forgotten == ["a"]


def test_a_request_that_cannot_be_finished_is_counted_and_forgotten():
    errors: list[str] = []
    proposer = Learning(RuntimeError("boom"))
    GuardedProposer(proposer, VOCAB, errors.append).finish("a")
    assert errors == [guard.RAISED]
    assert proposer.forgotten == ["a"]


def test_a_step_that_is_lost_forgets_and_does_not_finish():
    proposer = Learning()
    GuardedProposer(proposer, VOCAB, lambda reason: None).propose([view("a")])
    assert (proposer.finished, proposer.forgotten) == ([], ["a"])


def test_logs_are_rate_limited_per_reason(caplog):
    proposer = GuardedProposer(Scripted(RuntimeError("boom")), VOCAB, lambda reason: None)
    logging.getLogger("vllm.vllm_spec_plugin").propagate = True
    logging.getLogger("vllm").propagate = True
    with caplog.at_level(logging.WARNING, logger="vllm.vllm_spec_plugin"):
        for _ in range(5):
            proposer.propose([view()])
    assert sum("boom" in record.getMessage() for record in caplog.records) == 1
