"""The regression learns, forgets, and takes no notice of outliers."""

import math

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.regression import NUM_ANCHORS, ForgetfulRegression

from .curves import Noise

TRUE = np.array([3.0, 0.5, 0.05])
MEAN = np.array([1.0, 1.0, 0.1])
COVARIANCE = np.diag((2 * MEAN) ** 2)


def regression(**given):
    return ForgetfulRegression(MEAN, COVARIANCE, **given)


def draw(rng):
    return np.array([1.0, rng.integers(1, 20), rng.integers(1, 200)])


def learn(model, steps, noise, weights=TRUE, outliers=0.0):
    """Predictions over true values after each step, at the middle of what is observed."""
    middle = np.array([1.0, 10.0, 100.0])
    ratios = []
    for _ in range(steps):
        features = draw(noise.rng)
        value = noise(features @ weights)
        if noise.rng.random() < outliers:
            value *= noise.rng.uniform(20, 100)
        model.observe(features, value)
        ratios.append(model.predict(middle) / (middle @ weights))
    return np.array(ratios)


def test_without_noise_it_is_exact_within_a_hundred_observations():
    model = regression()
    learn(model, 100, Noise(0.0))
    assert model.weights == pytest.approx(TRUE, rel=0.02)


@pytest.mark.parametrize("place", range(NUM_ANCHORS + 1))
def test_an_outlier_among_the_first_does_not_set_the_level(place):
    model, features = regression(), np.array([1.0, 10.0, 100.0])
    for i in range(10):
        model.observe(features, 1000.0 if i == place else 10.0)
        if i:
            assert model.predict(features) == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_a_level_that_is_far_off_at_first_is_left_within_a_hundred_steps(factor):
    # As when the first ten steps wait for a compiler, or are those of a cache.
    model, noise = ForgetfulRegression(MEAN, np.diag((0.5 * MEAN) ** 2)), Noise()
    learn(model, 10, noise, weights=factor * TRUE)
    ratios = learn(model, 100, noise)
    assert abs(ratios[-20:].mean() - 1) < 0.1


def test_many_observations_of_one_point_leave_it_bounded():
    # 20,000 observations with 500 times the usual forgetting, as much as ten million.
    model, noise, features = regression(forgetting=0.05), Noise(), np.array([1.0, 10.0, 100.0])
    for _ in range(20_000):
        model.observe(features, noise(10.0))
    assert model.predict(features) == pytest.approx(10, rel=0.2)
    assert (model._covariance == model._covariance.T).all()
    assert np.linalg.eigvalsh(model._covariance).min() > 0
    # The level is the prior's by then, times 10 / 21; the prior's variances are the bound, but for noise.
    assert (np.diag(model._covariance) <= 1.5 * (10 / 21) ** 2 * np.diag(COVARIANCE)).all()
    assert np.abs(model.weights).max() < 10


def test_what_is_not_observed_becomes_uncertain_again_and_keeps_its_weight():
    model = regression(forgetting=0.01, non_negative=(0, 1, 2))
    learn(model, 300, Noise())
    weight, variance = model.weights[2], model._covariance[2, 2]
    features = np.array([1.0, 10.0, 0.0])
    for _ in range(1000):
        model.observe(features, float(features @ TRUE))
    assert model.weights[2] == pytest.approx(weight, rel=0.3)
    assert model._covariance[2, 2] > 20 * variance


def test_a_weight_that_cannot_be_negative_is_not_and_the_others_make_up_for_it():
    true = np.array([3.0, -0.1, 0.05])
    free, bound = regression(), regression(non_negative=(1, 2))
    for model in (free, bound):
        learn(model, 500, Noise(), weights=true)
    assert free.weights[1] < 0
    assert bound.weights[1] == 0
    middle = np.array([1.0, 10.0, 100.0])
    assert bound.predict(middle) == pytest.approx(middle @ true, rel=0.1)


def test_predictions_are_never_negative():
    model, features = ForgetfulRegression([1.0, 0.1], np.eye(2)), np.array([1.0, 20.0])
    for x in 5 * [0.0, 2.0, 4.0, 6.0, 8.0]:
        model.observe(np.array([1.0, x]), 10 - x)
    assert features @ model.weights < -5
    assert model.predict(features) == 0
    assert model.observe(features, 1.0) == 0


def test_what_was_believed_impossible_is_learnt_from():
    model, features = ForgetfulRegression([1.0, 0.1], np.eye(2), non_negative=(1,)), np.array([0.0, 5.0])
    for x in 5 * [0.0, 2.0, 4.0, 6.0, 8.0]:
        model.observe(np.array([1.0, x]), 10 - x)
    assert model.observe(features, 3.0) == 0
    assert model.predict(features) > 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e9])
def test_what_cannot_be_a_time_is_ignored(value):
    model = regression()
    learn(model, 20, Noise())
    weights, covariance = model.weights.copy(), model._covariance.copy()
    features = np.array([1.0, 10.0, 100.0])
    assert model.observe(features, value) == model.predict(features)
    assert (model.weights == weights).all()
    assert (model._covariance == covariance).all()
    assert model.num_observations == 20
