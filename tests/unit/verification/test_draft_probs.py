"""Bringing the q of several requests together."""

import torch

from vllm_spec_plugin.verification.draft_probs import SparseProbs, collate

CPU = torch.device("cpu")
SPARSE = SparseProbs(torch.tensor([[1, 2], [3, 0]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]]))


def test_certain_drafts_need_no_probabilities():
    assert collate([[1, 2], []], [None, None], CPU) is None
    assert collate([[], [4]], [SPARSE, None], CPU) is None


def test_sparse_and_certain_drafts_become_one_sparse_table():
    q = collate([[2, 3], [], [4]], [SPARSE, None, None], CPU)
    assert isinstance(q, SparseProbs)
    dense = torch.zeros(3, 5).scatter_add_(1, q.token_ids, q.probs)
    expected = torch.tensor([[0, 0.5, 0.5, 0, 0], [0.1, 0, 0, 0.9, 0], [0, 0, 0, 0, 1.0]])
    torch.testing.assert_close(dense, expected)


def test_rows_of_drafts_that_were_cut_are_left_out():
    q = collate([[2]], [SPARSE], CPU)
    assert isinstance(q, SparseProbs)
    assert len(q) == 1
    assert q.probs.tolist() == [[0.5, 0.5]]


def test_one_dense_q_makes_all_dense():
    dense = torch.full((1, 5), 0.2)
    q = collate([[0], [2, 3], [4]], [dense, SPARSE, None], CPU)
    assert isinstance(q, torch.Tensor)
    torch.testing.assert_close(q.sum(1), torch.ones(4))
    assert q[3].tolist() == [0, 0, 0, 0, 1]
