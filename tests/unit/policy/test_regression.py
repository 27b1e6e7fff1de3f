"""The regression takes no notice of outliers, and stays bounded."""

import numpy as np
import pytest

from vllm_spec_plugin.policy.regression import Regression, learn

from .curves import Noise

TRUE = np.array([3.0, 0.5, 0.05])
MEAN = np.array([1.0, 1.0, 0.1])
COVARIANCE = np.diag((2 * MEAN) ** 2)


def regression(non_negative=()):
    return Regression.of(MEAN, COVARIANCE, non_negative)


def learn_steps(model, steps, noise, weights=TRUE):
    for _ in range(steps):
        features = np.array([1.0, noise.rng.integers(1, 20), noise.rng.integers(1, 200)])
        learn(model, features, noise(features @ weights))


@pytest.mark.parametrize("place", range(6))
def test_an_outlier_among_the_first_does_not_set_the_level(place):
    """Three steps after it the level is right."""
    model, features = regression(), np.array([1.0, 10.0, 100.0])
    for i in range(10):
        learn(model, features, 1000.0 if i == place else 10.0)
        if not place <= i < place + 3:
            assert features @ model.weights == pytest.approx(10, rel=0.15)


def test_many_observations_of_one_point_leave_it_bounded():
    """20,000 of them, with 5% noise."""
    model, noise, features = regression(), Noise(), np.array([1.0, 10.0, 100.0])
    for _ in range(20_000):
        learn(model, features, noise(10.0))
    assert features @ model.weights == pytest.approx(10, rel=0.2)
    assert np.abs(model.weights).max() < 10


def test_what_was_not_observed_for_long_keeps_its_weight_and_is_then_learnt_quickly():
    model, often = regression((0, 1, 2)), np.array([1.0, 10.0, 0.0])
    learn_steps(model, 300, Noise())
    for _ in range(1000):
        learn(model, often, float(often @ TRUE))
    assert model.weights[2] == pytest.approx(TRUE[2], rel=0.3)
    seldom, changed = np.array([1.0, 10.0, 100.0]), TRUE * [1, 1, 4]
    for _ in range(5):
        learn(model, seldom, float(seldom @ changed))
    assert seldom @ model.weights == pytest.approx(seldom @ changed, rel=0.1)


def test_a_weight_that_cannot_be_negative_is_not_and_the_others_make_up_for_it():
    true = np.array([3.0, -0.1, 0.05])
    free, bound = regression(), regression((1, 2))
    for model in (free, bound):
        learn_steps(model, 500, Noise(), true)
    assert free.weights[1] < 0
    assert bound.weights[1] == 0
    middle = np.array([1.0, 10.0, 100.0])
    assert middle @ bound.weights == pytest.approx(middle @ true, rel=0.1)


def test_what_was_believed_impossible_is_learnt_from():
    model, features = Regression.of([1.0, 0.1], np.eye(2), (1,)), np.array([0.0, 5.0])
    for x in 5 * [0.0, 2.0, 4.0, 6.0, 8.0]:
        learn(model, np.array([1.0, x]), 10 - x)
    assert learn(model, features, 3.0) == 0
    assert features @ model.weights > 0
