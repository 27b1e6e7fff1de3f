"""Linear regression that learns from every step, forgets slowly and ignores single outliers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, Ints, compiled

# Share of forgetting per observation: a level with a prior standard deviation of 50% is then corrected by a tenth of
# each step's error.
_FORGETTING = 1e-4
# Bounds of a valid observation.
SMALLEST, LARGEST = 1e-9, 1e6
# Noise of an observation, as a share of it; maximum of a residual, in standard deviations.
_NOISE, _CLIP = 0.05, 3.0
_NUM_RESIDUALS, _SIGMA_PER_MEDIAN = 31, 1.4826
# Number of first observations of which each sets the level anew if it is below this share of the predicted value.
_NUM_FIRST, _DISTURBED = 5, 0.5
# Minimum scale of an observation, as a share of the prior's prediction.
_SCALE_FLOOR = 0.02


class Regression(NamedTuple):
    """Fits value = features @ weights + noise to positive values (seconds) whose noise is a share of them.

    A Kalman filter on the weights. It is scale-invariant: values times a factor give weights times that factor. The
    prior has a shape only; the first observations set its level.

    Each observation moves the covariance a little towards the prior's (scaled by the square of the present level). So
    observed weights stay adaptive; others keep their values, and their uncertainty slowly returns to the prior's.

    A residual is clipped at three standard deviations: the expected one or, if larger, that of the last 31 residuals, by
    their median. So one step of a hundred times the time counts little; once half of the residuals are large, the level
    has changed, and they count in full.

    Attributes:
        weights: [n], present weights.
        covariance: [n, n], theirs.
        mean: [n], prior mean.
        prior: [n, n], prior covariance.
        non_negative: indices of the weights that are at least 0.
        count: [1], number of observations.
        residuals: [31], sizes of the latest residuals, as shares of the predicted values.
    """

    weights: Floats
    covariance: Floats
    mean: Floats
    prior: Floats
    non_negative: Ints
    count: Ints
    residuals: Floats

    @classmethod
    def of(cls, mean: npt.ArrayLike, covariance: npt.ArrayLike, non_negative: Sequence[int]) -> "Regression":
        """Starts from a prior.

        Args:
            mean: [n], prior mean of the weights, up to a common factor.
            covariance: [n, n], prior covariance in the same units, positive definite.
            non_negative: indices of the weights that are at least 0.
        """
        own, prior = np.array(mean, np.float64), np.array(covariance, np.float64)
        indices, count = np.array(non_negative, np.int64), np.zeros(1, np.int64)
        return cls(own.copy(), prior.copy(), own, prior, indices, count, np.zeros(_NUM_RESIDUALS))


@compiled
def learn(model: Regression, features: Floats, value: float) -> float:
    """Updates the weights by one observation, and returns the value predicted before.

    Ignores a value that is no number or not between `SMALLEST` and `LARGEST`, and features for which the prior
    predicts 0.

    Args:
        model: the regression, changed in place.
        features: [n], finite.
        value: measured value.
    """
    predicted, expected = (model.weights * features).sum(), (model.mean * features).sum()
    if not SMALLEST < value < LARGEST or not expected > 0:
        return max(predicted, 0.0)
    num_before, raw = model.count[0], predicted
    model.count[0] += 1
    if not num_before or (num_before < _NUM_FIRST and value < _DISTURBED * predicted):
        # Disturbances make steps longer.
        level = value / expected
        model.mean[:] *= level
        model.prior[:] *= level * level
        model.weights[:], model.covariance[:], raw, expected = model.mean, model.prior, value, value
    scale = max(raw, _SCALE_FLOOR * expected)
    model.covariance[:] *= 1 - _FORGETTING
    model.covariance[:] += _FORGETTING * (scale / expected) ** 2 * model.prior
    spread = np.empty_like(features)
    for i in range(len(spread)):
        spread[i] = (model.covariance[i] * features).sum()
    deviation = math.sqrt((_NOISE * scale) ** 2 + (features * spread).sum())
    # Divided before the product, which then is symmetric to the last bit, as is the covariance.
    spread /= deviation
    usual = np.median(model.residuals[:num_before]) if num_before else 0.0
    limit = _CLIP * max(deviation, _SIGMA_PER_MEDIAN * usual * scale)
    model.residuals[num_before % _NUM_RESIDUALS] = abs(value - raw) / scale
    model.weights[:] += spread * (min(max(value - raw, -limit), limit) / deviation)
    for i in range(len(spread)):
        model.covariance[i] -= spread[i] * spread
    _keep_non_negative(model)
    return max(predicted, 0.0)


@compiled
def _keep_non_negative(model: Regression) -> None:
    """Sets negative weights to 0, and updates the others as by an observation of these zeros."""
    weights, covariance = model.weights, model.covariance
    has_negative = False
    for index in model.non_negative:
        if weights[index] < 0:
            has_negative = True
            share = weights[index] / covariance[index, index]
            weights[:] -= covariance[index] * share
    if has_negative:
        for index in model.non_negative:
            weights[index] = max(weights[index], 0.0)
