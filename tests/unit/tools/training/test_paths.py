"""Figures of heads by hand: accuracies, paths, and how often drawn drafts would be accepted."""

import itertools

import pytest
import torch

from vllm_spec_plugin.proposers.draft_tokens import draw_siblings
from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training.medusa import accepted_shares, drawn_paths, likeliest_paths
from vllm_spec_tools.training.report import accuracy, tokens_per_step


def test_accuracies_are_shares_of_all_positions() -> None:
    found = accuracy(torch.tensor([[0, 0, 1, NUM_RANKS], [9, 9, 9, 0]]))
    assert found == [[0.5, 0.25, *[0.0] * 8], [0.25, *[0.0] * 8, 0.75]]


def test_paths_are_counted_with_their_beginnings() -> None:
    ranks = torch.tensor([[0, 0, 0, 1, 2, NUM_RANKS, 0, 1], [0, 0, 3, 0, NUM_RANKS, 0, 0, 0]])
    expected = {(0,): 0.5, (0, 0): 0.375, (1,): 0.25, (1, 0): 0.25, (2,): 0.125, (0, 3): 0.125}
    assert likeliest_paths(ranks) == [(list(path), share) for path, share in expected.items()]


def test_a_chain_gains_the_next_token_and_the_first_right_ones() -> None:
    # Positions 0 (2 right), 3 (none), 4 (1, after it the text ends).
    row = torch.tensor([[0, 0, 0, 0, 0], [0, 5, 5, 1, 0], [0, 0, 0, 0, 2]])
    assert tokens_per_step([row]) == tokens_per_step([row, row]) == pytest.approx((3 + 1 + 2) / 3)


P = torch.tensor([0.5, 0.3, 0.15, 0.05])
Q = torch.tensor([0.1, 0.4, 0.2, 0.3])


def test_the_first_sibling_is_accepted_as_often_as_p_and_q_overlap() -> None:
    """Sum of min(p, q), the mean over draws on a fine grid; error of the grid below 1e-3."""
    uniforms = (torch.arange(4000, dtype=torch.float64)[:, None] + 0.5) / 4000
    tokens, probs = draw_siblings(Q.log().expand(4000, -1), uniforms)
    shares = accepted_shares(P.expand(4000, -1), tokens, probs)
    assert float(shares.mean()) == pytest.approx(float(torch.minimum(P, Q).sum()), abs=1e-3)


def test_shares_are_those_of_trying_siblings_in_turn_by_hand() -> None:
    after = Q.clone()
    after[3] = 0
    probs = torch.stack([Q, after / after.sum()])[None]
    first = 0.05 / 0.3
    left = (P - Q).clamp_min(0)
    left = left / left.sum()
    second = min(1.0, float(left[1] / probs[0, 1, 1]))
    shares = accepted_shares(P[None], torch.tensor([[3, 1]]), probs)
    assert shares.tolist()[0] == pytest.approx([first, (1 - first) * second], abs=1e-6)


def test_paths_are_means_of_products_likeliest_first_with_their_beginnings() -> None:
    shares = torch.rand(2, 30, 3, generator=torch.Generator().manual_seed(1)) / 3
    found = drawn_paths(shares, 100)
    expected: dict[tuple[int, ...], float] = {(a,): float(shares[0, :, a].mean()) for a in range(3)}
    for a, b in itertools.product(range(3), repeat=2):
        expected[a, b] = float((shares[0, :, a] * shares[1, :, b]).mean())
    assert {tuple(path): share for path, share in found} == pytest.approx(expected)
    assert [share for _, share in found] == pytest.approx(sorted(expected.values(), reverse=True))
    few = [tuple(path) for path, _ in drawn_paths(shares, 5)]
    assert few == [tuple(path) for path, _ in found[:5]]
    assert all(len(path) == 1 or path[:-1] in few for path in few)
    assert drawn_paths(torch.zeros(2, 0, 3), 5) == []
