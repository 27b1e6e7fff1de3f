"""Draft tokens are drawn by inverting the distribution function, exactly."""

import numpy as np
import pytest
import torch

from tests.sizes import examples
from vllm_spec_plugin.proposers.draft_tokens import draw, most_likely

ALMOST_ONE = 1 - 2**-53
EXTREMES = [0.0, 5e-324, 2**-53, 0.5, 1 - 2**-52, ALMOST_ONE]
WEIGHTS = [0.0, 0.0, 1.0, 1e-3, 1e-20, 1e-38, 1e-45]


@pytest.fixture
def draw_one(device):
    """The token drawn from one row with one uniform."""

    def draw_one(probs, uniform):
        row = torch.tensor(np.array([probs]), dtype=torch.float32, device=device)
        return int(draw(row, torch.tensor([uniform], dtype=torch.float64, device=device)))

    return draw_one


def test_the_token_is_where_the_distribution_function_passes_the_uniform(draw_one):
    """Rows of multiples of 1/1024, whose sums have no rounding; two equal cuts are a token of probability 0. Seed 1."""
    rng = np.random.default_rng(1)
    for _ in range(examples(200, 2000)):
        cuts = [*rng.choice([0, 1, 512, 1024], rng.integers(4)), *rng.integers(0, 1025, rng.integers(10))]
        probs = np.diff(sorted([0, *cuts, 1024])) / 1024
        uniform = rng.choice([rng.choice(EXTREMES), rng.random(), rng.integers(1024) / 1024])
        assert draw_one(probs, uniform) == np.searchsorted(np.cumsum(probs), uniform, side="right"), (probs, uniform)


@pytest.mark.parametrize("vocab_size", [1, 50, 64, 65, 128, 1000])
def test_a_batch_is_drawn_row_by_row(vocab_size, device):
    rng = np.random.default_rng(5)
    probs = torch.from_numpy(rng.dirichlet(np.full(vocab_size, 0.1), 200)).float()
    shares = rng.random(200)
    cumulated = np.cumsum(probs.double().numpy(), axis=1)
    expected = [
        np.searchsorted(row, share * row[-1], side="right") for row, share in zip(cumulated, shares, strict=True)
    ]
    tokens = draw(probs.to(device), torch.from_numpy(shares).to(device))
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == expected


def test_no_token_of_probability_0_is_drawn(draw_one):
    """Weights of all sizes, down to numbers that float32 can hardly tell from 0. Seed 2."""
    rng = np.random.default_rng(2)
    for _ in range(examples(200, 2000)):
        zeros = np.zeros(rng.choice([0, 100, 300]))
        some = [zeros, rng.choice(WEIGHTS, rng.integers(20)), rng.random(rng.integers(1, 20)) * rng.choice([0, 1])]
        weights = torch.tensor(rng.permutation(np.concatenate(some)), dtype=torch.float32)
        if not weights.any():
            continue
        probs = (weights.double() / weights.double().sum()).float()
        uniform = rng.choice([rng.choice(EXTREMES), rng.random()])
        assert probs[draw_one(probs.tolist(), uniform)] > 0, (probs, uniform)


def test_small_probabilities_of_a_large_vocabulary_are_not_lost(draw_one):
    """In float32 the distribution function would stand still for 60 tokens at a time behind the first."""
    probs = np.full(100_001, 1e-9, np.float32)
    probs[0] = 1 - 1e-4
    cumulated = np.cumsum(probs, dtype=np.float64)
    for token in (1, 50_000, 50_001, 50_002, 99_999):
        assert draw_one(probs, (cumulated[token] - 5e-10) / cumulated[-1]) == token


def test_the_most_likely_token_is_the_first_of_the_greatest(device):
    infinite = float("-inf")
    logits = torch.tensor([[0.0, 3.0, 3.0], [infinite, -1.0, infinite], [2.0, 1.0, 0.0]], device=device)
    tokens = most_likely(logits)
    assert tokens.dtype == torch.int64
    assert tokens.device == logits.device
    assert tokens.tolist() == [1, 1, 0]
    assert most_likely(logits[:, ::2]).tolist() == [1, 0, 0]
