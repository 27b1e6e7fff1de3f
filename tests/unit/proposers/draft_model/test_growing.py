"""Drafts grow place by place; those that are done leave the batch, and keep what is theirs."""

import numpy as np
import pytest
import torch

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings, GrowingDrafts

VOCAB_SIZE = 5
CPU = torch.device("cpu")
UNIFORMS = np.array([0.1, 0.5, 0.9])


def growing(*lengths, point_mass=(), **settings):
    """Requests whose row is ten times their index; those at `point_mass` are certain."""
    views = [
        RequestView(str(i), np.zeros(1, np.int32), k, UNIFORMS[:k], i in point_mass, 10 * i)
        for i, k in enumerate(lengths)
    ]
    return GrowingDrafts(views, list(lengths), DraftSettings(**settings), CPU)


def likely(*tokens, by=50.0):
    """Logits under which each row's token is certain, or likelier than others by that."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCAB_SIZE) * by


def finished(batch):
    return [(draft.token_ids, fed) for draft, fed in batch.finish()]


@pytest.mark.parametrize("settings", [{}, {"draft_sampling": "greedy"}, {"min_confidence": 0.5}], ids=str)
def test_those_that_reach_their_k_leave_from_the_end(settings):
    batch = growing(3, 2, 1, **settings)
    assert batch.rows.tolist() == [0, 10, 20]
    assert batch.tokens.shape == (3, 0)
    batch.grow(likely(1, 2, 3))
    assert (batch.lengths, batch.rows.tolist(), batch.tokens.tolist()) == ([3, 2], [0, 10], [[1], [2]])
    batch.grow(likely(4, 0))
    assert (batch.lengths, batch.rows.tolist(), batch.tokens.tolist()) == ([3], [0], [[1, 4]])
    assert batch.last.tolist() == [4]
    batch.grow(likely(2))
    assert batch.lengths == []
    assert finished(batch) == [([1, 4, 2], [1, 4]), ([2, 0], [2]), ([3], [])]


def test_all_of_one_length_end_together():
    batch = growing(2, 2)
    batch.grow(likely(1, 2))
    assert batch.last.tolist() == [1, 2]
    batch.grow(likely(3, 4))
    assert batch.lengths == []
    assert finished(batch) == [([1, 3], [1]), ([2, 4], [2])]


def test_nobody_asks_how_sure_a_token_is():
    assert growing(3, 2).grow(likely(1, 2)) is None


def test_those_that_are_not_sure_leave_from_anywhere():
    batch = growing(3, 3, 2, 2, point_mass=(0, 1, 2, 3), min_confidence=0.5)
    logits = likely(1, 2, 3, 4)
    logits[1] = likely(2, by=0.1)
    sure = batch.grow(logits)
    assert sure is not None
    assert sure.tolist() == [0, 2, 3]
    assert (batch.lengths, batch.rows.tolist(), batch.last.tolist()) == ([3, 2, 2], [0, 20, 30], [1, 3, 4])
    logits = likely(0, 0, 0)
    logits[0] = likely(2, by=0.1)
    sure = batch.grow(logits)
    assert sure is not None
    assert sure.tolist() == [1, 2]
    assert batch.lengths == [], "the others are at their K"
    assert [tokens for tokens, _ in finished(batch)] == [[1], [], [3, 0], [4, 0]]


def test_an_unsure_token_is_dropped_if_certain_and_kept_if_drawn():
    batch = growing(2, 2, 2, point_mass=(0,), min_confidence=0.5)
    logits = torch.cat([likely(1, 1, by=0.1), likely(3)])
    sure = batch.grow(logits)
    assert sure is not None
    assert sure.tolist() == [2]
    batch.grow(likely(4))
    drafts = [draft for draft, _ in batch.finish()]
    assert [draft.token_ids for draft in drafts] == [[], [0], [3, 4]]
    assert drafts[0].probs is None
    assert isinstance(drafts[1].probs, torch.Tensor)
    torch.testing.assert_close(drafts[1].probs, logits[1:2].softmax(-1))
    assert isinstance(drafts[2].probs, torch.Tensor)
    torch.testing.assert_close(drafts[2].probs, torch.cat([likely(3), likely(4)]).softmax(-1))


def test_a_token_as_likely_as_asked_for_is_sure():
    logits = torch.tensor([[0.25, 0.25, 0.5, 0.0, 0.0]]).log()
    sure = growing(2, point_mass=(0,), min_confidence=0.49).grow(logits)
    assert sure is not None
    assert sure.tolist() == [0]
    sure = growing(2, point_mass=(0,), min_confidence=0.51).grow(logits)
    assert sure is not None
    assert sure.tolist() == []


def test_uniforms_and_q_stay_with_their_request_when_others_leave():
    """The second of three draws a token of probability 0.05 and leaves at the first place."""
    batch = growing(3, 3, 3, min_confidence=0.1)
    probs = torch.tensor([[0.3, 0.3, 0.4, 0.0, 0.0], [0.0, 0.2, 0.2, 0.2, 0.4], [0.0, 0.0, 0.2, 0.4, 0.4]])
    unsure = torch.tensor([0.08, 0.05, 0.87, 0.0, 0.0])
    batch.grow(torch.stack([probs[0], unsure, probs[2]]).log())
    batch.grow(probs[[1, 0]].log())
    batch.grow(probs[[2, 1]].log())
    drafts = [draft for draft, _ in batch.finish()]
    # Uniforms 0.1, 0.5 and 0.9 of each row's distribution function.
    assert [draft.token_ids for draft in drafts] == [[0, 3, 4], [1], [2, 1, 4]]
    for draft, q in zip(drafts, [probs[[0, 1, 2]], unsure[None], probs[[2, 0, 1]]], strict=True):
        assert isinstance(draft.probs, torch.Tensor)
        torch.testing.assert_close(draft.probs, q)


def test_logits_are_left_as_they_were():
    logits = torch.randn(2, VOCAB_SIZE)
    before = logits.clone()
    growing(2, 1, min_confidence=0.2).grow(logits)
    assert logits.equal(before)
