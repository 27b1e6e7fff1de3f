"""Linear regression that learns from every step, forgets slowly and ignores single outliers."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, Ints, compiled

# At 1e-4 a level known to a factor of 1.5 beforehand is followed with a tenth of each step's error.
FORGETTING = 1e-4
# First observations whose median ratio to the prior's predictions sets the prior's level.
NUM_ANCHORS = 5
# Values outside these are no observations.
SMALLEST, LARGEST = 1e-9, 1e6
# Noise of an observation, as a share of it; standard deviations that a residual counts up to.
_NOISE, _CLIP = 0.05, 3.0
_NUM_RESIDUALS, _SIGMA_PER_MEDIAN = 31, 1.4826
# Least scale of an observation, as a share of what the prior expects.
_SCALE_FLOOR = 0.02


class ForgetfulRegression:
    """value = features @ weights + noise, for positive values (seconds) whose noise is a share of them.

    A Kalman filter on the weights. It treats all scales alike: values a thousand times as large give
    weights a thousand times as large.

    **Level.** The prior's shape is believed, its level is not: the median of value / prior prediction
    over the first `NUM_ANCHORS` observations scales the prior.

    **Forgetting.** Each observation moves the covariance by the share `forgetting` towards the prior's
    (scaled by the square of the present level). So it stays between the two: what is observed is
    followed for ever, what is not keeps its weight and slowly becomes uncertain again, never more than
    it was in the beginning.

    **Outliers.** A residual counts up to three standard deviations of what was to be expected or, if
    more, of the last 31 residuals, judged by their median. One step of a hundred times the time moves
    the weights like one of a slightly unusual time; once half of the residuals are large, the level
    has changed, and they count in full.
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
            mean: [num_weights], the weights believed in, up to a common factor.
            covariance: [num_weights, num_weights], positive definite, in the same units.
            non_negative: which weights can't be below 0.
            forgetting: in (0, 1), per observation.
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
        """[num_weights], as they are now; read only."""
        return self._weights

    @property
    def num_observations(self) -> int:
        """How many observations were learnt from."""
        return self._num_observations

    def predict(self, features: Floats) -> float:
        """The value expected at `features`, [num_weights]; never below 0."""
        return max(0.0, float(features.dot(self._weights)))

    def observe(self, features: Floats, value: float) -> float:
        """Learns from one observation.

        One that can't be is ignored: a value that is no number or not within `SMALLEST` and `LARGEST`,
        features at which the prior expects nothing.

        Args:
            features: [num_weights], finite.
            value: what was measured there.

        Returns:
            What was predicted before.
        """
        can_be = SMALLEST < value < LARGEST
        if can_be and self._num_observations >= NUM_ANCHORS:
            return max(0.0, self._learn(features, value))
        raw, expected = _expect(features, self._weights, self._mean)
        if can_be and expected > 0:
            self._num_observations += 1
            self._anchor(features, value, value / expected)
        return max(0.0, raw)

    def _anchor(self, features: Floats, value: float, ratio: float) -> None:
        self._anchors.append((ratio, value, features.copy()))
        # Of an even number the lower one: what disturbs a step makes it longer.
        level = sorted(ratio for ratio, _, _ in self._anchors)[(len(self._anchors) - 1) // 2]
        self._weights = self._mean * level
        if self._num_observations < NUM_ANCHORS:
            return
        self._mean = self._weights.copy()
        self._prior *= level * level
        self._covariance = self._prior.copy()
        # The most typical first: by the time an outlier comes, it is recognised as one.
        self._anchors.sort(key=lambda anchor: abs(math.log(anchor[0] / level)))
        for _, anchored, at in self._anchors:
            self._learn(at, anchored)
        self._num_observations = NUM_ANCHORS
        self._anchors.clear()

    def _learn(self, features: Floats, value: float) -> float:
        """What the weights expected; where the prior expects something."""
        median = sorted(self._residuals)[len(self._residuals) // 2] if self._residuals else 0.0
        state = self._weights, self._covariance, self._mean, self._prior
        raw, residual = _learn(*state, self._non_negative, features, value, median, self._forgetting)
        if residual >= 0:
            self._num_observations += 1
            self._residuals.append(residual)
        return raw


@compiled
def _expect(features: Floats, weights: Floats, mean: Floats) -> tuple[float, float]:
    """What the weights expect at `features`, and what the prior's mean does; all [num_weights]."""
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
        weights: [num_weights]; changed in place.
        covariance: [num_weights, num_weights], of the weights, symmetric; changed in place.
        prior: [num_weights, num_weights], symmetric.
        features: [num_weights], what was observed at.
        residual: value that was observed less the expected one.
        scale: of the value; its noise is `_NOISE` of it.
        spread_of_residuals: standard deviation of the last ones; a residual counts up to three of them, or of
            what was to be expected.
        stay: how much of the covariance stays.
        back: how much of the prior is added.
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
    raw, expected = _expect(features, weights, mean)
    if expected <= 0:
        return raw, -1.0
    scale = max(raw, _SCALE_FLOOR * expected)
    residual, spread_of_residuals = value - raw, _SIGMA_PER_MEDIAN * scale * median
    back = forgetting * (scale / expected) ** 2
    _correct(weights, covariance, prior, features, residual, scale, spread_of_residuals, 1 - forgetting, back)
    _keep_non_negative(weights, covariance, non_negative)
    return raw, abs(residual) / scale
