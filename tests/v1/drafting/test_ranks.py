"""What ranks compare; tests/engine/test_parallel.py has two of them."""

import numpy as np
import pytest
import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.v1.drafting.draft_engine import rank_plan
from vllm_spec_plugin.v1.drafting.ranks import draft_digest
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.verification.draft_probs import SparseProbs
from vllm_spec_plugin.verification.topology import topology


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
