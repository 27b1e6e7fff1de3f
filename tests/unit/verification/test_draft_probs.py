"""Bringing the q of several requests together."""

import torch

from vllm_spec_plugin.verification.draft_probs import SparseProbs, collate

SPARSE = SparseProbs(torch.tensor([[1, 2], [3, 0]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]]))


def test_certain_drafts_need_no_probabilities(device):
    assert collate([[1, 2], []], [None, None], device) is None
    assert collate([[], [4]], [SPARSE, None], device) is None


def test_sparse_and_certain_drafts_become_one_sparse_table(device):
    q = collate([[2, 3], [], [4]], [SPARSE, None, None], device)
    assert isinstance(q, SparseProbs)
    dense = torch.zeros(3, 5, device=device).scatter_add_(1, q.token_ids, q.probs).cpu()
    expected = torch.tensor([[0, 0.5, 0.5, 0, 0], [0.1, 0, 0, 0.9, 0], [0, 0, 0, 0, 1.0]])
    torch.testing.assert_close(dense, expected)


def test_rows_of_drafts_that_were_cut_are_left_out(device):
    q = collate([[2]], [SPARSE], device)
    assert isinstance(q, SparseProbs)
    assert len(q) == 1
    assert q.probs.tolist() == [[0.5, 0.5]]


def test_one_dense_q_makes_all_dense(device):
    dense = torch.full((1, 5), 0.2)
    q = collate([[0], [2, 3], [4]], [dense, SPARSE, None], device)
    assert isinstance(q, torch.Tensor)
    torch.testing.assert_close(q.sum(1).cpu(), torch.ones(4))
    assert q[3].tolist() == [0, 0, 0, 0, 1]


def test_proposers_need_not_share_a_device(device):
    """Drafts on the scorer's device, on the CPU, and certain ones: sparse, then all made dense."""
    moved = SparseProbs(SPARSE.token_ids.to(device), SPARSE.probs.to(device))
    drafts, probs = [[1, 3], [2, 3], [4]], [moved, SPARSE, None]
    sparse = collate(drafts, probs, device)
    assert isinstance(sparse, SparseProbs)
    dense = collate([*drafts, [0]], [*probs, torch.full((1, 5), 0.2, device=device)], device)
    assert isinstance(dense, torch.Tensor)
    assert {sparse.token_ids.device.type, sparse.probs.device.type, dense.device.type} == {device.type}
    table = torch.zeros(5, 5, device=device).scatter_add_(1, sparse.token_ids, sparse.probs)
    torch.testing.assert_close(table, dense[:5])
