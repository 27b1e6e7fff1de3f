"""The regression takes no notice of outliers, and stays bounded."""

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.regression import NUM_ANCHORS, ForgetfulRegression

from .curves import Noise

MEAN = np.array([1.0, 1.0, 0.1])
COVARIANCE = np.diag((2 * MEAN) ** 2)


def regression(**given):
    return ForgetfulRegression(MEAN, COVARIANCE, **given)


@pytest.mark.parametrize("place", range(NUM_ANCHORS + 1))
def test_an_outlier_among_the_first_does_not_set_the_level(place):
    model, features = regression(), np.array([1.0, 10.0, 100.0])
    for i in range(10):
        model.observe(features, 1000.0 if i == place else 10.0)
        if i:
            assert features @ model.weights == pytest.approx(10, rel=0.15)


def test_many_observations_of_one_point_leave_it_bounded():
    # 20,000 observations with 500 times the usual forgetting, as much as ten million.
    model, noise, features = regression(forgetting=0.05), Noise(), np.array([1.0, 10.0, 100.0])
    for _ in range(20_000):
        model.observe(features, noise(10.0))
    assert features @ model.weights == pytest.approx(10, rel=0.2)
    assert np.abs(model.weights).max() < 10


def test_what_was_believed_impossible_is_learnt_from():
    model, features = ForgetfulRegression([1.0, 0.1], np.eye(2), non_negative=(1,)), np.array([0.0, 5.0])
    for x in 5 * [0.0, 2.0, 4.0, 6.0, 8.0]:
        model.observe(np.array([1.0, x]), 10 - x)
    assert model.observe(features, 3.0) == 0
    assert features @ model.weights > 0
