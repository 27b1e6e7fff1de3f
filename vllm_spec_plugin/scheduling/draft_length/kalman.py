"""A step of a Kalman filter on the weights of a regression; compiled code only. regression.py says what it is for."""

import math

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints

RELATIVE_NOISE = 0.05
_CLIP = 3.0
_SIGMA_PER_MEDIAN = 1.4826
_SCALE_FLOOR = 0.02


@compiled
def expect(features: Floats, weights: Floats, mean: Floats) -> tuple[float, float]:
    """What the weights expect at `features`, and what the prior's mean does; all [num_weights]."""
    raw = expected = 0.0
    for i in range(len(features)):
        raw += features[i] * weights[i]
        expected += features[i] * mean[i]
    return raw, expected


@compiled
def correct(
    weights: Floats,
    covariance: Floats,
    prior: Floats,
    features: Floats,
    residual: float,
    scale: float,
    spread_of_residuals: float,
    stay: float,
    back: float,
) -> None:
    """Moves weights and covariance by one observation.

    Args:
        weights: [num_weights]; changed in place.
        covariance: [num_weights, num_weights], of the weights, symmetric; changed in place.
        prior: [num_weights, num_weights], symmetric.
        features: [num_weights], what was observed at.
        residual: value that was observed less the expected one.
        scale: of the value; its noise is `RELATIVE_NOISE` of it.
        spread_of_residuals: standard deviation of the last ones; a residual counts up to three of them, or of
            what was to be expected.
        stay: how much of the covariance stays.
        back: how much of the prior is added.
    """
    num_weights = len(weights)
    spread = np.empty(num_weights)
    variance = (RELATIVE_NOISE * scale) ** 2
    for i in range(num_weights):
        along = 0.0
        for j in range(num_weights):
            covariance[i, j] = stay * covariance[i, j] + back * prior[i, j]
            along += covariance[i, j] * features[j]
        spread[i] = along
        variance += features[i] * along
    deviation = math.sqrt(variance)
    # Divided before the product, which then is symmetric to the last bit, as is the covariance.
    for i in range(num_weights):
        spread[i] /= deviation
    limit = _CLIP * max(deviation, spread_of_residuals)
    surprise = min(max(residual, -limit), limit) / deviation
    for i in range(num_weights):
        for j in range(num_weights):
            covariance[i, j] -= spread[i] * spread[j]
        weights[i] += spread[i] * surprise


@compiled
def keep_non_negative(weights: Floats, covariance: Floats, indices: Ints) -> None:
    """Sets negative weights that can't be to 0, and moves the others as if that had been observed.

    Args:
        weights: [num_weights]; changed in place.
        covariance: [num_weights, num_weights], of the weights.
        indices: [n], of the weights that can't be negative.
    """
    negative = [index for index in indices if weights[index] < 0]
    for index in negative:
        share = weights[index] / covariance[index, index]
        for i in range(len(weights)):
            weights[i] -= covariance[index, i] * share
    if negative:
        for index in indices:
            weights[index] = max(weights[index], 0.0)


@compiled
def learn(
    weights: Floats,
    covariance: Floats,
    mean: Floats,
    prior: Floats,
    non_negative: Ints,
    features: Floats,
    value: float,
    median: float,
    forgetting: float,
) -> tuple[float, float]:
    """Learns from one observation, if the prior expects something there.

    Args:
        weights: [num_weights]; changed in place.
        covariance: [num_weights, num_weights], of the weights, symmetric; changed in place.
        mean: [num_weights], the prior's.
        prior: [num_weights, num_weights], the prior's covariance.
        non_negative: [n], indices of the weights that can't be negative.
        features: [num_weights], what was observed at.
        value: what was observed.
        median: of the last residuals.
        forgetting: share by which the covariance moves towards the prior's.

    Returns:
        What the weights expected, and the residual's size as a share of it; the latter is -1 if nothing was learnt.
    """
    raw, expected = expect(features, weights, mean)
    if expected <= 0:
        return raw, -1.0
    scale = max(raw, _SCALE_FLOOR * expected)
    residual, spread_of_residuals = value - raw, _SIGMA_PER_MEDIAN * scale * median
    back = forgetting * (scale / expected) ** 2
    correct(weights, covariance, prior, features, residual, scale, spread_of_residuals, 1 - forgetting, back)
    keep_non_negative(weights, covariance, non_negative)
    return raw, abs(residual) / scale
