"""Linear regression that learns from every step, forgets slowly and ignores single outliers."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, Ints, compiled

# Default share of forgetting per observation: a level with a prior standard deviation of 50% is then corrected by a
# tenth of each step's error.
FORGETTING = 1e-4
# Number of first observations whose median ratio to the prior's predictions sets the prior's level.
NUM_ANCHORS = 5
# Bounds of a valid observation.
SMALLEST, LARGEST = 1e-9, 1e6
# Noise of an observation, as a share of it; maximum of a residual, in standard deviations.
_NOISE, _CLIP = 0.05, 3.0
_NUM_RESIDUALS, _SIGMA_PER_MEDIAN = 31, 1.4826
# Minimum scale of an observation, as a share of the prior's prediction.
_SCALE_FLOOR = 0.02


class ForgetfulRegression:
    """Fits value = features @ weights + noise to positive values (seconds) whose noise is a share of them.

    A Kalman filter on the weights. It is scale-invariant: values times a factor give weights times that factor.

    **Level.** The prior has a shape only: the median of value / prior prediction over the first `NUM_ANCHORS`
    observations scales it.

    **Forgetting.** Each observation moves the covariance by the share `forgetting` towards the prior's (scaled by the
    square of the present level). So observed weights stay adaptive; others keep their values, and their uncertainty
    slowly returns to the prior's.

    **Outliers.** A residual is clipped at three standard deviations: the expected one or, if larger, that of the last
    31 residuals, by their median. So one step of a hundred times the time counts little; once half of the residuals are
    large, the level has changed, and they count in full.
    """

    def __init__(
        self,
        mean: npt.ArrayLike,
        covariance: npt.ArrayLike,
        non_negative: Sequence[int] = (),
        forgetting: float = FORGETTING,
    ) -> None:
        """Starts from a prior.

        Args:
            mean: [num_weights], prior mean of the weights, up to a common factor.
            covariance: [num_weights, num_weights], prior covariance in the same units, positive definite.
            non_negative: indices of the weights that are at least 0.
            forgetting: share of forgetting per observation, in (0, 1).
        """
        self._mean: Floats = np.array(mean, np.float64)
        self._prior: Floats = np.array(covariance, np.float64)
        self._non_negative = np.array(non_negative, np.int64)
        self._forgetting = forgetting
        self._weights = self._mean.copy()
        self._covariance = self._prior.copy()
        self._anchors: list[tuple[float, float, Floats]] = []
        self._residuals: deque[float] = deque(maxlen=_NUM_RESIDUALS)
        self._num_observations = 0

    @property
    def weights(self) -> Floats:
        """[num_weights], present weights; read-only."""
        return self._weights

    @property
    def num_observations(self) -> int:
        """Number of observations, without ignored ones."""
        return self._num_observations

    def observe(self, features: Floats, value: float) -> float:
        """Updates the weights by one observation.

        Ignores invalid ones: a value that is no number or not between `SMALLEST` and `LARGEST`, and features for which
        the prior predicts 0.

        Args:
            features: [num_weights], finite.
            value: measured value.

        Returns:
            The value predicted before, at least 0.
        """
        is_valid = SMALLEST < value < LARGEST
        if is_valid and self._num_observations >= NUM_ANCHORS:
            return max(0.0, self._learn(features, value))
        raw, expected = _expect(features, self._weights, self._mean)
        if is_valid and expected > 0:
            self._num_observations += 1
            self._anchor(features, value, value / expected)
        return max(0.0, raw)

    def _anchor(self, features: Floats, value: float, ratio: float) -> None:
        self._anchors.append((ratio, value, features.copy()))
        # The lower median of an even number: disturbances make steps longer.
        level = sorted(ratio for ratio, _, _ in self._anchors)[(len(self._anchors) - 1) // 2]
        self._weights = self._mean * level
        if self._num_observations < NUM_ANCHORS:
            return
        self._mean = self._weights.copy()
        self._prior *= level * level
        self._covariance = self._prior.copy()
        # The most typical first, so that outliers are recognised.
        self._anchors.sort(key=lambda anchor: abs(math.log(anchor[0] / level)))
        for _, anchored, at in self._anchors:
            self._learn(at, anchored)
        self._num_observations = NUM_ANCHORS
        self._anchors.clear()

    def _learn(self, features: Floats, value: float) -> float:
        """Updates the weights, and returns the value predicted before."""
        median = sorted(self._residuals)[len(self._residuals) // 2] if self._residuals else 0.0
        state = self._weights, self._covariance, self._mean, self._prior
        raw, residual = _learn(*state, self._non_negative, features, value, median, self._forgetting)
        if residual >= 0:
            self._num_observations += 1
            self._residuals.append(residual)
        return raw


@compiled
def _expect(features: Floats, weights: Floats, mean: Floats) -> tuple[float, float]:
    """Returns the predictions of the weights and of the prior's mean; all [num_weights]."""
    raw = expected = 0.0
    for i in range(len(features)):
        raw += features[i] * weights[i]
        expected += features[i] * mean[i]
    return raw, expected


@compiled
def _correct(
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
        weights: [num_weights], changed in place.
        covariance: [num_weights, num_weights], covariance of the weights, changed in place.
        prior: [num_weights, num_weights], prior covariance.
        features: [num_weights], features of the observation.
        residual: observed value less the predicted one.
        scale: scale of the value; its noise is `_NOISE` times it.
        spread_of_residuals: standard deviation of the last residuals.
        stay: factor of the covariance.
        back: factor of the prior covariance, which is added.
    """
    num_weights = len(weights)
    spread = np.empty(num_weights)
    variance = (_NOISE * scale) ** 2
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
def _keep_non_negative(weights: Floats, covariance: Floats, indices: Ints) -> None:
    """Sets negative weights to 0, and updates the others as by an observation of these zeros.

    Args:
        weights: [num_weights], changed in place.
        covariance: [num_weights, num_weights], covariance of the weights.
        indices: [n], indices of the weights that are at least 0.
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
def _learn(
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
    """Updates the weights by one observation, unless the prior predicts 0 for its features.

    Args:
        weights: [num_weights], changed in place.
        covariance: [num_weights, num_weights], covariance of the weights, changed in place.
        mean: [num_weights], prior mean.
        prior: [num_weights, num_weights], prior covariance.
        non_negative: [n], indices of the weights that are at least 0.
        features: [num_weights], features of the observation.
        value: observed value.
        median: median of the last relative residuals.
        forgetting: share by which the covariance moves towards the prior's.

    Returns:
        The value predicted before, and the absolute residual as a share of it; -1 for the latter without an update.
    """
    raw, expected = _expect(features, weights, mean)
    if expected <= 0:
        return raw, -1.0
    scale = max(raw, _SCALE_FLOOR * expected)
    residual, spread_of_residuals = value - raw, _SIGMA_PER_MEDIAN * scale * median
    back = forgetting * (scale / expected) ** 2
    _correct(weights, covariance, prior, features, residual, scale, spread_of_residuals, 1 - forgetting, back)
    _keep_non_negative(weights, covariance, non_negative)
    return raw, abs(residual) / scale
