"""Linear regression that learns from every step, forgets slowly and takes no notice of single outliers."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.scheduling.draft_length.arrays import Floats
from vllm_spec_plugin.scheduling.draft_length.kalman import expect, learn
from vllm_spec_plugin.scheduling.draft_length.running_median import RunningMedian

# At 1e-4 a level known to a factor of 1.5 beforehand is followed with a tenth of each step's error.
FORGETTING = 1e-4
NUM_ANCHORS = 5
SMALLEST, LARGEST = 1e-9, 1e6

_RESIDUALS = 31


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
        self._residuals = RunningMedian(_RESIDUALS)
        self._num_observations = 0

    @property
    def weights(self) -> Floats:
        """[num_weights], as they are now; read only."""
        return self._weights

    @property
    def covariance(self) -> Floats:
        """[num_weights, num_weights], of the weights as they are now; read only."""
        return self._covariance

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
        raw, expected = expect(features, self._weights, self._mean)
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
        raw, residual = learn(
            self._weights,
            self._covariance,
            self._mean,
            self._prior,
            self._non_negative,
            features,
            value,
            self._residuals.median(0.0),
            self._forgetting,
        )
        if residual >= 0:
            self._num_observations += 1
            self._residuals.add(residual)
        return raw
