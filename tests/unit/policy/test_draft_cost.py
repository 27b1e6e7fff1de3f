"""The cost of drafting is learnt within few steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.policy.draft_cost import DraftCost

from .curves import Noise


def of_a_model(passes, rows, caught_up):
    return 0.3e-3 + 1.5e-3 * passes + 0.1e-3 * rows + 0.05e-3 * caught_up


def of_ngrams(passes, rows, caught_up):
    return 20e-6 + 5e-6 * rows


def seconds(cost, passes, rows, caught_up=0):
    """Computes the expected time of a step."""
    return np.dot(cost.coefficients, np.broadcast_arrays(np.ones(np.shape(rows)), passes, rows, caught_up))


def learn(cost, steps, noise, time, factor=1.0):
    for _ in range(steps):
        lengths = noise.rng.integers(1, 6, noise.rng.integers(1, 5))
        gap = int(noise.rng.integers(0, 2) * noise.rng.integers(1, 200))
        step = (int(lengths.max()), int(lengths.sum()), gap)
        cost.observe(*step, factor * noise(time(*step)))


@pytest.mark.parametrize("unit", [1e-3, 1.0, 100.0])
def test_ten_steps_tell_a_models_cost_to_a_factor_of_1_3(unit):
    # 30 starts, 5% noise.
    noise = Noise()
    lengths = np.array([1, 2, 3, 4, 5, 8])
    for _ in range(30):
        cost = DraftCost()
        learn(cost, 10, noise, of_a_model, factor=unit)
        for num_requests in (1, 3):
            rows = lengths * num_requests
            for gap in (0, 100):
                ratios = seconds(cost, lengths, rows, gap) / (unit * of_a_model(lengths, rows, gap))
                assert (ratios < 1.3).all()
                assert (ratios > 1 / 1.3).all()


def test_ten_steps_tell_the_cost_of_a_proposer_whose_passes_are_free():
    """30 starts, 5% noise; passes and tokens rise together."""
    noise, rows = Noise(), np.array([2, 4, 8, 16])
    for _ in range(30):
        cost = DraftCost()
        learn(cost, 10, noise, of_ngrams)
        ratios = seconds(cost, np.minimum(rows, 5), rows) / of_ngrams(0, rows, 0)
        assert (ratios < 1.35).all()
        assert (ratios > 1 / 1.35).all()


def test_a_proposer_that_was_not_asked_teaches_nothing():
    cost = DraftCost()
    learn(cost, 20, Noise(), of_a_model)
    assert cost.observe(0, 0, 50, 0.1) == 0
    assert cost.num_observations == 20


def test_looking_for_drafts_in_vain_takes_time_too():
    cost, noise = DraftCost(), Noise()
    for _ in range(50):
        cost.observe(8, 0, 0, noise(of_ngrams(1, 0, 0)))
    assert seconds(cost, 1, 0) == pytest.approx(of_ngrams(1, 0, 0), rel=0.1)
    assert cost.num_observations == 50


def test_no_time_counts_as_a_microsecond():
    cost = DraftCost()
    for _ in range(10):
        cost.observe(0, 4, 0, 0.0)
    assert float(seconds(cost, 0, 4)) == pytest.approx(1e-6)


SECONDS = st.one_of(st.floats(), st.floats(0, 1e6))
COUNTS = st.one_of(st.integers(-1, 10), st.integers(-1, 10**9))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, SECONDS), max_size=40))
def test_garbage_leaves_it_finite_and_not_falling(steps):
    cost = DraftCost()
    for step in steps:
        assert cost.observe(*step) >= 0
    counts = np.arange(20)
    expected = seconds(cost, counts, 3 * counts, 10)
    assert np.isfinite(expected).all()
    assert (np.diff(expected) >= 0).all()
    assert (cost.coefficients >= 0).all()
