"""A proposer's faults cost its drafts and nothing else."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.metrics import counters
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.verification.draft_probs import SparseProbs, collate
from vllm_spec_plugin.verification.topology import chain, topology

VOCAB = 10
FORK = topology([[0], [1], [0, 0]])


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


def view(request_id="a", k=2, **more):
    return RequestView(request_id, np.arange(3, dtype=np.int32), k, np.zeros(k), **more)


def propose(answer, requests=None):
    errors: list[str] = []
    proposer = Scripted(answer)
    drafts = GuardedProposer(proposer, VOCAB, errors.append).propose(requests or [view()])
    return drafts, errors, proposer


def q(*shape, value=0.1, **options):
    return torch.full(shape, value, **options)


def sparse(token_ids: Any, probs: Any) -> SparseProbs:
    return SparseProbs(torch.tensor([token_ids]), torch.tensor([probs]))


SOUND = Draft([1, 2], q(2, VOCAB))
WRONG_DRAFTS: Any = [None, [1], {"token_ids": [1]}, 1, "ab", torch.tensor([1])]
WRONG_TOKENS: Any = [
    *(None, 1, "1", {1}, iter([1]), ["x"], [1.0], [True], [None], [[1]], [np.float32(1)], [torch.tensor(1)]),
    *(np.array([1.0]), np.array([True]), np.array([[1]]), np.array(1), torch.tensor([True]), torch.tensor([[1]])),
]
WRONG_PROBS: Any = [
    *([[0.1] * VOCAB], np.full((1, VOCAB), 0.1), torch.ones(1, VOCAB, dtype=torch.int64), q(1, VOCAB).to_sparse()),
    sparse([1.0], [1.0]),
    SparseProbs(np.array([[1]]), torch.tensor([[1.0]])),  # type: ignore[arg-type]
]
BAD_PROBS: Any = [
    *(q(1, VOCAB, value=value) for value in (float("nan"), 0.3, 0.1001, 0.0999)),
    *(q(2, VOCAB), q(1, 4, value=0.25), torch.ones(1), torch.tensor([[1.5, -0.5] + [0.0] * 8])),
    *(sparse([1, 2], [0.5, 0.501]), sparse([1, 2, 1], [0.25, 0.5, 0.25]), sparse([1, VOCAB], [0.5, 0.5])),
    sparse([1], [float("inf")]),
]
WRONG_TREE: Any = [[0]]
TREES = {"k": 4, "depth": 2}


@pytest.mark.parametrize(
    ("draft", "given", "reason"),
    [
        (Draft([1, 2, 3]), {}, counters.TOO_MANY_TOKENS),
        (Draft([VOCAB]), {}, counters.OUT_OF_VOCABULARY),
        (Draft([-1]), {}, counters.OUT_OF_VOCABULARY),
        *[(Draft([1], probs), {}, counters.BAD_PROBS) for probs in BAD_PROBS],
        (Draft([1], BAD_PROBS[0]), {"point_mass": True}, counters.BAD_PROBS),
        *[(Draft(tokens), {}, counters.WRONG_TYPE) for tokens in WRONG_TOKENS],
        *[(Draft([1], probs), {}, counters.WRONG_TYPE) for probs in WRONG_PROBS],
        *[(draft, {}, counters.WRONG_TYPE) for draft in WRONG_DRAFTS],
        (Draft([1], None, WRONG_TREE), {}, counters.WRONG_TYPE),
        (Draft([1, 2], None, FORK), TREES, counters.WRONG_TREE),
        (Draft([1, 2, 3, 4], None, FORK), TREES, counters.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), TREES | {"depth": 1}, counters.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), TREES | {"chain_only": True}, counters.WRONG_TREE),
        (Draft([1, 2, 3], None, chain(3)), TREES, counters.WRONG_TREE),
        (Draft([1, 2, 3], None, FORK), TREES | {"k": 2}, counters.TOO_MANY_TOKENS),
        (Draft([1, 2, 3], q(2, VOCAB), FORK), TREES, counters.BAD_PROBS),
    ],
)
def test_an_unsound_draft_is_dropped_and_counted_alone(draft, given, reason):
    (first, second), errors, _ = propose([draft, SOUND], [view("a", **given), view("b")])
    assert first == NO_DRAFT
    assert (second.token_ids, second.probs) == (SOUND.token_ids, SOUND.probs)
    assert errors == [reason]
    assert reason in counters.PROPOSER_ERRORS


@pytest.mark.parametrize(
    ("draft", "given"),
    [
        (Draft([1], q(1, VOCAB, value=0.1 + 1e-6)), {}),
        (Draft([1], torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0)).softmax(-1)), {}),
        (Draft([1], sparse([1, 2, 1, 1], [0.5, 0.5, 0.0, 0.0])), {}),
        (Draft([1, 2, 3], q(3, VOCAB), FORK), TREES),
        (Draft([1, 2], None, chain(2)), TREES | {"chain_only": True}),
        (Draft([], None, chain(0)), {"k": 0, "depth": 0}),
    ],
)
def test_sound_drafts_pass(draft, given):
    """Also sums that differ from 1 by rounding, and padding with a token that the row has."""
    [found], errors, _ = propose([draft], [view(**given)])
    assert (found.token_ids, found.tree, errors) == (draft.token_ids, draft.tree, [])
    assert found.probs is draft.probs


@pytest.mark.parametrize("tokens", [(1, 2), np.array([1, 2], np.uint8), torch.tensor([1, 2]), [np.int32(1), 2]])
@pytest.mark.parametrize(
    "probs",
    [
        None,
        q(2, VOCAB, dtype=torch.float64, requires_grad=True),
        SparseProbs(torch.tensor([[1], [2]], dtype=torch.int32), torch.ones(2, 1, dtype=torch.float16)),
    ],
    ids=["certain", "float64 with gradient", "sparse"],
)
def test_other_types_of_the_same_are_converted(tokens, probs):
    """The tokens can be joined with other drafts, and compared with a list."""
    [draft], errors, _ = propose([Draft(tokens, probs)])
    assert (draft.token_ids, errors) == ([1, 2], [])
    assert all(type(token) is int for token in draft.token_ids)
    joined = collate([draft.token_ids, [3]], [draft.probs, q(1, VOCAB)], torch.device("cpu"))
    assert isinstance(joined, torch.Tensor)
    assert (joined.dtype, joined.requires_grad) == (torch.float32, False)
    torch.testing.assert_close(joined.sum(-1), torch.ones(3))


def test_a_draft_that_must_be_certain_has_no_q():
    assert propose([SOUND], [view(point_mass=True)])[:2] == ([Draft([1, 2])], [])


@pytest.mark.parametrize("answer", [None, 1, iter([SOUND]), {"a": SOUND}, "a", np.array([1]), torch.tensor([[1.0]])])
def test_nothing_but_a_list_of_drafts_gets_through_a_cascade(answer):
    """A generator of drafts is one."""
    errors: list[str] = []
    member = Member(GuardedProposer(Scripted(answer), VOCAB, errors.append))
    [draft] = Cascade([member], lambda *noted: None).propose([view(depth=2, draft_plan=((0, 2),))])
    assert draft.token_ids == ([] if errors else SOUND.token_ids)
    assert len(errors) == (not isinstance(answer, Iterator))


@pytest.mark.parametrize(
    ("answer", "reason"), [(RuntimeError("boom"), counters.RAISED), ([SOUND], counters.WRONG_COUNT)], ids=str
)
def test_a_proposer_that_fails_loses_the_step_and_its_state(answer, reason):
    drafts, errors, proposer = propose(answer, [view("a"), view("b")])
    assert (drafts, errors, proposer.forgotten) == ([NO_DRAFT, NO_DRAFT], [reason], ["a", "b"])


class Learning(Scripted):
    """Is told which requests ended."""

    def __init__(self, error=None):
        super().__init__([])
        self.finished, self.error = [], error

    def finish(self, request_id):
        self.finished.append(request_id)
        if self.error:
            raise self.error


def test_a_request_that_ended_is_finished_where_the_proposer_asks_for_that_else_forgotten():
    """One that cannot be finished is forgotten, and so are those of a step that is lost."""
    errors: list[str] = []
    learning, failing, other = Learning(), Learning(RuntimeError("boom")), Scripted([])
    for proposer in (learning, failing, other):
        GuardedProposer(proposer, VOCAB, errors.append).finish("a")
    assert errors == [counters.RAISED]
    assert (learning.finished, learning.forgotten) == (["a"], [])
    assert failing.forgotten == other.forgotten == ["a"]
    GuardedProposer(learning, VOCAB, errors.append).propose([view("b")])
    assert (learning.finished, learning.forgotten) == (["a"], ["b"])


def test_a_method_logs_one_fault_a_minute_with_its_traceback(caplog, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    scripted = Scripted(RuntimeError("boom"))
    guarded = GuardedProposer(scripted, VOCAB, lambda reason: None, "bigram")
    for name in ("vllm", "vllm.vllm_spec_plugin"):
        logging.getLogger(name).propagate = True
    with caplog.at_level(logging.WARNING, logger="vllm.vllm_spec_plugin"):
        for _ in range(3):
            guarded.propose([view()])
        # Faults of other kinds are faults of the same method.
        scripted.answer = [None]
        guarded.propose([view()])
        clock[0] += 60
        guarded.propose([view()])
    # pytest listens twice where vLLM was imported before.
    first, second = {id(record): record for record in caplog.records}.values()
    assert "method bigram, reason raised: no drafts in this step: RuntimeError: boom" in first.getMessage()
    assert "raise self.answer" in first.exc_text
    assert "method bigram, reason wrong_type: draft of request a" in second.getMessage()
    assert "3 more faults" in second.getMessage()
