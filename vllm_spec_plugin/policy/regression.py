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
# Number of first observations whose median ratio to the prior's predictions sets the prior's level.
NUM_FIRST = 5
# Minimum scale of an observation, as a share of the prior's prediction.
_SCALE_FLOOR = 0.02


class Regression(NamedTuple):
    """Fits value = features @ weights + noise to positive values (seconds) whose noise is a share of them.

    A Kalman filter on the weights. It is scale-invariant: values times a factor give weights times that factor. The
    prior has a shape only: the median of value / prior prediction over the first five observations scales it.

    Each observation moves the covariance a little towards the prior's (scaled by the square of the present level). So
    observed weights stay adaptive; others keep their values, and their uncertainty slowly returns to the prior's.

    A residual is clipped at three standard deviations: the expected one or, if larger, that of the last 31 residuals,
    by their median. So one step of a hundred times the time counts little; once half of the residuals are large, the
    level has changed, and they count in full.

    Attributes:
        weights: [n], present weights.
        covariance: [n, n], theirs.
        mean: [n], prior mean.
        prior: [n, n], prior covariance.
        non_negative: indices of the weights that are at least 0.
        num_seen: [1], number of observations.
        first: [5, 2 + n], ratio to the prior's prediction, value and features of each of the first observations.
        residuals: [32], sizes of the latest residuals, as shares of the predicted values; the last is their number.
    """

    weights: Floats
    covariance: Floats
    mean: Floats
    prior: Floats
    non_negative: Ints
    num_seen: Ints
    first: Floats
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
        first, residuals = np.zeros((NUM_FIRST, 2 + len(own))), np.zeros(_NUM_RESIDUALS + 1)
        return cls(own.copy(), prior.copy(), own, prior, indices, count, first, residuals)


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
    raw: float = (model.weights * features).sum()
    expected = (model.mean * features).sum()
    if SMALLEST < value < LARGEST and expected > 0:
        model.num_seen[0] += 1
        if model.num_seen[0] <= NUM_FIRST:
            _set_level(model, features, value, value / expected)
        else:
            _update(model, features, value)
    return max(raw, 0.0)


@compiled
def _set_level(model: Regression, features: Floats, value: float, ratio: float) -> None:
    """Sets the level by one of the first observations; after the last of them learns from all."""
    first, count = model.first, model.num_seen[0]
    first[count - 1, 0], first[count - 1, 1], first[count - 1, 2:] = ratio, value, features
    # The lower median of an even number: disturbances make steps longer.
    level = np.sort(first[:count, 0])[(count - 1) // 2]
    model.weights[:] = model.mean * level
    if count == NUM_FIRST:
        model.mean[:] *= level
        model.prior[:] *= level * level
        model.covariance[:] = model.prior
        # The most typical first, so that outliers are recognised.
        for i in np.argsort(np.abs(np.log(first[:, 0] / level))):
            _update(model, first[i, 2:], first[i, 1])


@compiled
def _update(model: Regression, features: Floats, value: float) -> None:
    """Moves weights and covariance by one observation; loops, as temporary arrays take longer than the sums."""
    weights, covariance, count = model.weights, model.covariance, len(features)
    raw, expected = (weights * features).sum(), (model.mean * features).sum()
    scale, spread = max(raw, _SCALE_FLOOR * expected), np.zeros(count)
    back, variance = _FORGETTING * (scale / expected) ** 2, (_NOISE * scale) ** 2
    for i in range(count):
        for j in range(count):
            covariance[i, j] = (1 - _FORGETTING) * covariance[i, j] + back * model.prior[i, j]
            spread[i] += covariance[i, j] * features[j]
        variance += features[i] * spread[i]
    deviation = math.sqrt(variance)
    # Divided before the product, which then is symmetric to the last bit, as is the covariance.
    spread /= deviation
    residuals, num_before = model.residuals, int(model.residuals[-1])
    usual = np.median(residuals[: min(num_before, _NUM_RESIDUALS)]) if num_before else 0.0
    residuals[num_before % _NUM_RESIDUALS], residuals[-1] = abs(value - raw) / scale, num_before + 1
    limit = _CLIP * max(deviation, _SIGMA_PER_MEDIAN * usual * scale)
    surprise = min(max(value - raw, -limit), limit) / deviation
    for i in range(count):
        for j in range(count):
            covariance[i, j] -= spread[i] * spread[j]
        weights[i] += spread[i] * surprise
    _keep_non_negative(model)


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
