"""Draft tokens are drawn by inverting the distribution function, exactly."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.sizes import examples
from vllm_spec_plugin.proposers.draw import confidence, draw

ALMOST_ONE = 1 - 2**-53
EXTREMES = [0.0, 5e-324, 2**-53, 0.5, 1 - 2**-52, ALMOST_ONE]
uniforms = st.sampled_from(EXTREMES) | st.floats(0, ALMOST_ONE)


def rows_of(*probs):
    return torch.tensor(np.array(probs), dtype=torch.float32)


def draw_one(probs, uniform):
    return int(draw(rows_of(probs), torch.tensor([uniform], dtype=torch.float64)))


# Multiples of 1/1024, whose sums have no rounding; where two cuts are equal lies a token of probability 0.
dyadic_rows = st.lists(st.sampled_from([0, 1, 512, 1024]) | st.integers(0, 1024), max_size=12).map(
    lambda cuts: np.diff(sorted([0, *cuts, 1024])) / 1024
)


@given(probs=dyadic_rows, uniform=uniforms | st.integers(0, 1023).map(lambda i: i / 1024))
@settings(max_examples=examples(50, 300), deadline=None)
def test_the_token_is_where_the_distribution_function_passes_the_uniform(probs, uniform):
    expected = int(np.searchsorted(np.cumsum(probs), uniform, side="right"))
    assert draw_one(probs, uniform) == expected


def test_a_batch_is_drawn_row_by_row():
    rng = np.random.default_rng(5)
    probs = torch.from_numpy(rng.dirichlet(np.full(50, 0.1), 200)).float()
    shares = rng.random(200)
    cumulated = np.cumsum(probs.double().numpy(), axis=1)
    expected = [
        np.searchsorted(row, share * row[-1], side="right") for row, share in zip(cumulated, shares, strict=True)
    ]
    tokens = draw(probs, torch.from_numpy(shares))
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == expected


@given(
    weights=st.lists(
        st.sampled_from([0.0, 0.0, 1.0, 1e-3, 1e-20, 1e-38, 1e-45]) | st.floats(0, 1, width=32), min_size=1, max_size=40
    ).filter(any),
    uniform=uniforms,
)
@settings(max_examples=examples(50, 300), deadline=None)
def test_no_token_of_probability_0_is_drawn(weights, uniform):
    weights = torch.tensor(weights, dtype=torch.float32)
    probs = (weights.double() / weights.double().sum()).float()
    assert probs[draw_one(probs.tolist(), uniform)] > 0


@pytest.mark.parametrize("uniform", EXTREMES)
@pytest.mark.parametrize("token", [0, 3, 6])
def test_a_certain_token_is_always_drawn(uniform, token):
    assert draw_one(np.eye(7)[token], uniform) == token


@pytest.mark.parametrize("total", [0.9999, 1.0001])
def test_extreme_uniforms_draw_the_first_and_the_last_possible_token_of_rows_that_sum_to_about_1(total):
    probs = np.array([0, 0, 0.25, 0.5, 0.25, 0, 0]) * total
    assert draw_one(probs, 0.0) == 2
    assert draw_one(probs, ALMOST_ONE) == 4


def test_a_uniform_of_1_draws_a_possible_token_all_the_same():
    assert draw_one([0, 0.25, 0.75, 0], 1.0) == 2


def test_small_probabilities_of_a_large_vocabulary_are_not_lost():
    """In float32 the distribution function would stand still for 60 tokens at a time behind the first."""
    probs = np.full(100_001, 1e-9, np.float32)
    probs[0] = 1 - 1e-4
    cumulated = np.cumsum(probs, dtype=np.float64)
    for token in (1, 50_000, 50_001, 50_002, 99_999):
        assert draw_one(probs, (cumulated[token] - 5e-10) / cumulated[-1]) == token


@pytest.mark.statistical
def test_tokens_come_as_often_as_they_are_likely():
    """200,000 draws, seed 7; chi-square at a false-alarm rate of 1e-6, and the test notices 2% of one token moved."""
    probs = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.15, 0.1, 0.04, 0.01, 0.0])
    num_draws = 200_000
    shares = torch.from_numpy(np.random.default_rng(7).random(num_draws))
    seen = np.bincount(draw(probs.expand(num_draws, -1), shares).numpy(), minlength=len(probs))
    possible = probs.numpy() > 0
    assert not seen[~possible].any()

    def statistic(distribution):
        due = distribution[possible] * num_draws
        return ((seen[possible] - due) ** 2 / due).sum()

    limit = chi2.isf(1e-6, possible.sum() - 1)
    assert statistic(probs.numpy().astype(np.float64)) < limit
    moved = probs.numpy().astype(np.float64)
    moved[[1, 3]] += [-0.008, 0.008]
    assert statistic(moved) > limit


def test_confidence_is_the_softmax_at_the_token():
    logits = torch.tensor([[0.0, 1.0, 2.0], [5.0, float("-inf"), 5.0], [1e4, 0.0, -1e4]])
    tokens = torch.tensor([2, 0, 1])
    expected = [np.exp(2) / (1 + np.e + np.exp(2)), 0.5, 0.0]
    torch.testing.assert_close(confidence(logits, tokens), torch.tensor(expected, dtype=torch.float32))
    assert confidence(logits, torch.tensor([0, 1, 0])).tolist()[1:] == [0, 1]
