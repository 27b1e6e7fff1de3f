"""Siblings are drawn without replacement, and q of each is what it was drawn from given those before it."""

import itertools
import math

import numpy as np
import pytest
import torch

from vllm_spec_plugin.proposers.draft_tokens import draw_siblings

Q = np.array([0.4, 0.25, 0.2, 0.1, 0.05])


@pytest.fixture
def siblings(device):
    """Tokens and q for rows of random numbers."""

    def siblings(probs, uniforms):
        rows = torch.from_numpy(np.atleast_2d(uniforms)).to(device)
        logits = torch.from_numpy(np.log(np.array(probs))).float().to(device).expand(len(rows), -1)
        tokens, q = draw_siblings(logits, rows)
        return tokens.cpu(), q.cpu()

    return siblings


def sequence_probability(tokens):
    """Drawn one after the other without replacement (Plackett and Luce)."""
    probability, left = 1.0, 1.0
    for token in tokens:
        probability *= Q[token] / left
        left -= Q[token]
    return probability


def test_each_q_is_the_distribution_without_the_siblings_before(siblings):
    uniforms = np.random.default_rng(1).random((50, 4))
    tokens, probs = siblings(Q, uniforms)
    for drawn, rows in zip(tokens.tolist(), probs.double().numpy(), strict=True):
        left = Q.copy()
        for token, row in zip(drawn, rows, strict=True):
            np.testing.assert_allclose(row, left / left.sum(), atol=1e-6)
            left[token] = 0
        assert all(rows[rank, token] == 0 for rank in range(4) for token in drawn[:rank])


def test_the_sequences_have_their_exact_probabilities(siblings):
    """All midpoints of a grid of 80 x 80 numbers.

    The first token's intervals end on lines of the grid, so its shares are exact; the second's are off by less than
    one line of 80.
    """
    side = (np.arange(80) + 0.5) / 80
    grid = np.array(list(itertools.product(side, side)))
    tokens, _ = siblings(Q, grid)
    pairs, counts = np.unique(tokens.numpy(), axis=0, return_counts=True)
    shares = {tuple(pair): count / len(grid) for pair, count in zip(pairs.tolist(), counts, strict=True)}
    assert set(shares) == set(itertools.permutations(range(5), 2))
    for pair, share in shares.items():
        assert abs(share - sequence_probability(pair)) < Q[pair[0]] / 80
    for token in range(5):
        assert math.isclose(sum(share for pair, share in shares.items() if pair[0] == token), Q[token], abs_tol=1e-9)


def test_where_no_token_is_left_further_siblings_are_certain(siblings):
    with np.errstate(divide="ignore"):
        tokens, probs = siblings([0.0, 0.25, 0.75, 0.0], [[0.5, 0.5, 0.5, 0.9]])
    assert sorted(tokens[0, :2].tolist()) == [1, 2]
    assert tokens[0, 2:].tolist() == [0, 0]
    assert probs[0, 2:].tolist() == [[1, 0, 0, 0]] * 2
    torch.testing.assert_close(probs[0, 0], torch.tensor([0, 0.25, 0.75, 0]))
    assert bool(torch.isfinite(probs).all())


def test_extreme_numbers_draw_tokens_that_have_probability(siblings):
    for numbers in ([0.0] * 3, [1 - 2**-53] * 3):
        with np.errstate(divide="ignore"):
            tokens, probs = siblings([0.0, 0.5, 0.3, 0.2, 0.0], [numbers])
        assert sorted(tokens[0].tolist()) == [1, 2, 3]
        torch.testing.assert_close(probs.sum(-1), torch.ones(1, 3))
