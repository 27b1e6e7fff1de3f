"""Tests that the scheduler cuts the least probable draft tokens; the rest is verified depth first with its q."""

import pytest
import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft
from vllm_spec_plugin.v1.drafting.pending_drafts import as_cut, tokens_to_send
from vllm_spec_plugin.verification.draft_probs import SparseProbs
from vllm_spec_plugin.verification.topology import by_priority

TREE = by_priority([[0], [0, 0], [1], [0, 1], [1, 0], [0, 0, 0]])
# Depth first, the number of each one in the order is its token's last digit.
TOKENS = [10, 11, 15, 13, 12, 14]
DENSE = torch.arange(6.0)[:, None].expand(6, 8)
SPARSE = SparseProbs(torch.arange(6)[:, None], torch.arange(6.0)[:, None])


def test_tokens_are_sent_by_priority():
    assert TREE.numbers == (0, 1, 5, 3, 2, 4)
    assert tokens_to_send(Draft(TOKENS, None, TREE)) == [10, 11, 12, 13, 14, 15]
    assert tokens_to_send(Draft([3, 4])) == [3, 4]


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("probs", [None, DENSE, SPARSE], ids=["certain", "dense", "sparse"])
def test_what_is_left_is_a_tree_with_its_q(count, probs):
    draft = Draft(TOKENS, probs, TREE)
    cut = as_cut(draft, tokens_to_send(draft)[:count])
    assert cut.tree is TREE.first(count)
    assert cut.token_ids == [token for token in TOKENS if token % 10 < count]
    rows = [node for node, token in enumerate(TOKENS) if token % 10 < count]
    assert type(cut.probs) is type(probs)
    if isinstance(cut.probs, torch.Tensor):
        assert torch.equal(cut.probs, DENSE[rows])
    elif isinstance(cut.probs, SparseProbs):
        assert torch.equal(cut.probs.token_ids, SPARSE.token_ids[rows])
        assert torch.equal(cut.probs.probs, SPARSE.probs[rows])


@pytest.mark.parametrize("sent", [[10, 12], TOKENS, [*sorted(TOKENS), 16], [7]], ids=str)
def test_other_tokens_than_were_sent_are_no_draft(sent):
    assert as_cut(Draft(TOKENS, DENSE, TREE), sent) is NO_DRAFT
