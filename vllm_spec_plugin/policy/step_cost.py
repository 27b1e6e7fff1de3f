"""Models the time of a target's step, by regression on measured steps."""

import bisect
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, compiled
from vllm_spec_plugin.policy.regression import LARGEST, SMALLEST, ForgetfulRegression

_SMALL_KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# End of the line beyond the last knot, so that interpolation also extrapolates.
_FAR = 1e9

# Prior without a probe: seconds of a step of one token, and the share of them that is fixed (reading the weights).
_UNKNOWN_SECONDS = 0.01
_UNKNOWN_FIXED_SHARE = 0.9

# Prior standard deviations of factor, offset and individual errors, with a probe and without: shares of the curve, for
# the offset of a step of one token.
_PROBED = (0.5, 0.2, 0.1)
_UNKNOWN = (1.0, 0.5, 0.3)
# Individual errors of knots a factor of four apart have a correlation of 1 / e.
_CORRELATION_LENGTH = math.log(4)
# Prior standard deviations of the other costs, as shares of a step of one token: per request, per token of context, of
# a step with drafts, and per request of such a step.
_OTHERS = (0.03, 3e-5, 0.5, 0.02)
# Where drafting is part of the step: prior means per pass of the drafter, per draft token, and of a step with requests
# of unequal lengths; and their standard deviations. Shares of a step of one token.
_DRAFTER, _OF_DRAFTER = (0.1, 0.005, 0.0), (0.1, 0.005, 0.2)


class StepCost:
    """Models seconds of a target's step by its scheduled tokens N, requests B, tokens of context C and drafts.

    T = curve(N) + b * B + c * C + (d + e * B) * D, where the curve is linear between knots of N, and D is 1 if drafts
    are verified or made, else 0. D has costs of its own, as the first draft token is not on the curve: engines have
    faster kernels and graphs for decoding only, and part of the time of drafts is not measured by proposers.

    The prior is the curve that was probed at start-up. Its errors have a large common factor, a large common offset,
    and small individual parts that are correlated at neighbouring knots. So a few steps at one N correct the whole
    curve, steps at several N its shape; without steps it keeps the probe's.

    With `has_drafter`, T includes the time in which vLLM's own drafter drafts, p * passes + r * rows, and u * U, where
    U is 1 if its requests have unequal numbers of tokens: then no full CUDA graph is replayed.
    """

    def __init__(self, max_tokens: int, probe: Sequence[tuple[int, float]] = (), *, has_drafter: bool = False) -> None:
        """Starts from the probe, or without one from a guess.

        Args:
            max_tokens: maximum tokens of a step.
            probe: (num_tokens, seconds) of dummy steps at start-up, in any order, sizes may repeat; impossible pairs
                are ignored.
            has_drafter: whether measured seconds include drafting.

        Raises:
            ValueError: `max_tokens` is below 1.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        self._knots = _knots(max_tokens)
        at = np.array(self._knots, np.float64)
        probed = _clean(probe)
        shape = _shape(at, probed)
        drafter, deviations = (_DRAFTER, _OF_DRAFTER) if has_drafter else ((), ())
        covariance = _covariance(at, shape, *(_PROBED if probed else _UNKNOWN), (*_OTHERS, *deviations))
        self._num_knots = len(at)
        others = range(len(at), len(covariance))
        self._requests, self._context, self._drafting, self._drafted = others[: len(_OTHERS)]
        self._drafter = others[len(_OTHERS) :]
        mean = np.concatenate([shape, [0.0] * len(_OTHERS), np.array(drafter) * shape[0]])
        self._regression = ForgetfulRegression(mean, covariance, tuple(others))
        self._features: Floats = np.zeros(len(mean))
        self._at = np.append(at, _FAR)
        self._curve = np.empty(len(self._at))
        self._draw_curve()

    @property
    def num_observations(self) -> int:
        """Number of observed steps; before the first one the prior holds."""
        return self._regression.num_observations

    @property
    def drafter_seconds(self) -> Floats:
        """[3], of a drafter whose time is part of the step: seconds per pass, per draft token, of unequal lengths."""
        return self._regression.weights[self._drafter.start : self._drafter.stop]

    def observe(
        self,
        num_tokens: int,
        num_requests: int,
        context: int,
        seconds: float,
        *,
        has_drafts: bool = False,
        drafter: tuple[int, int, bool] = (0, 0, False),
    ) -> float:
        """Updates the model by a step; ignores impossible ones (no tokens, negative counts, no positive time).

        Args:
            num_tokens: scheduled tokens, drafts included.
            num_requests: number of requests with scheduled tokens.
            context: total tokens of context of these requests.
            seconds: measured seconds of the step.
            has_drafts: whether drafts were verified or made in it.
            drafter: passes and draft tokens of a drafter whose time is part of `seconds`, and whether the step's
                requests have unequal numbers of tokens.

        Returns:
            The seconds predicted before.
        """
        lower = min(max(bisect.bisect_right(self._knots, num_tokens) - 1, 0), self._num_knots - 2)
        left, right = self._knots[lower], self._knots[lower + 1]
        share = max(0.0, (num_tokens - left) / (right - left))
        below, above = self._curve[lower : lower + 2].tolist()
        predicted: float = below + share * (above - below) + self._overhead(num_requests, context)
        predicted += has_drafts * self._of_drafts(num_requests)
        if self._drafter:
            predicted += float(self.drafter_seconds @ drafter)
            self._features[self._drafter.start :] = drafter
        if num_tokens < 1 or num_requests < 0 or context < 0 or not SMALLEST < seconds < LARGEST:
            return predicted
        features = self._features
        features[lower], features[lower + 1] = 1 - share, share
        features[self._requests], features[self._context] = num_requests, context
        features[self._drafting], features[self._drafted] = has_drafts, has_drafts * num_requests
        self._regression.observe(features, seconds)
        features[lower] = features[lower + 1] = 0
        self._draw_curve()
        return predicted

    def seconds(self, num_tokens: npt.ArrayLike, num_requests: int, context: int) -> Floats:
        """Returns expected seconds of steps without drafts, in the shape of `num_tokens`; positive, non-decreasing.

        Args:
            num_tokens: scheduled tokens of each step, any shape; below 1 counts as 1, beyond `max_tokens` the curve is
                extrapolated.
            num_requests: number of requests of each step.
            context: total tokens of context of these requests.
        """
        expected: Floats = np.interp(np.asarray(num_tokens, np.float64), self._at, self._curve)
        expected += self._overhead(num_requests, context)
        return expected

    def seconds_of(self, num_tokens: Floats, num_requests: Floats, context: Floats) -> Floats:
        """Returns [n], as `seconds`, for n steps with tokens, requests and context of their own."""
        weights = self._regression.weights
        expected: Floats = np.interp(num_tokens, self._at, self._curve)
        expected += num_requests * weights.item(self._requests) + context * weights.item(self._context)
        return expected

    def seconds_from(self, num_tokens: int, count: int, num_requests: int, context: int) -> Floats:
        """Returns [count], expected seconds of a step of `num_tokens` tokens and 0, 1, 2, ... draft tokens."""
        steps = _values_from(num_tokens, count, self._at, self._curve, self._overhead(num_requests, context))
        steps[1:] += self._of_drafts(num_requests)
        return steps

    def _overhead(self, num_requests: int, context: int) -> float:
        weights = self._regression.weights
        return max(num_requests, 0) * weights.item(self._requests) + max(context, 0) * weights.item(self._context)

    def _of_drafts(self, num_requests: int) -> float:
        weights = self._regression.weights
        return weights.item(self._drafting) + max(num_requests, 0) * weights.item(self._drafted)

    def _draw_curve(self) -> None:
        _draw(self._regression.weights[: self._num_knots], self._at, self._curve, SMALLEST)


@compiled
def _draw(learnt: Floats, at: Floats, curve: Floats, lowest: float) -> None:
    """Writes the non-decreasing curve with the smallest maximum distance from the learnt values.

    Args:
        learnt: [n], value at each knot, n at least 2.
        at: [n + 1], the knots, ascending, and the end of the extrapolated last piece.
        curve: [n + 1], values of the curve at these; written.
        lowest: lower bound of the curve.
    """
    num_knots = len(learnt)
    highest = learnt[0]
    for i in range(num_knots):
        highest = max(highest, learnt[i])
        curve[i] = highest
    minimum = learnt[num_knots - 1]
    for i in range(num_knots - 1, -1, -1):
        minimum = min(minimum, learnt[i])
        curve[i] = max((curve[i] + minimum) * 0.5, lowest)
    slope = (curve[num_knots - 1] - curve[num_knots - 2]) / (at[num_knots - 1] - at[num_knots - 2])
    curve[num_knots] = curve[num_knots - 1] + slope * (at[num_knots] - at[num_knots - 1])


@compiled
def _values_from(first: int, count: int, at: Floats, curve: Floats, more: float) -> Floats:
    """Returns [count], values of the curve at `first`, `first` + 1, ..., plus `more`.

    Args:
        first: first argument of the curve.
        count: number of values.
        at: [n], the knots, ascending, n at least 2.
        curve: [n], values at the knots; constant before the first, the last piece is extrapolated.
        more: constant added to each value.
    """
    values = np.empty(count)
    piece = 0
    slope = (curve[1] - curve[0]) / (at[1] - at[0])
    for i in range(count):
        while piece + 2 < len(at) and first + i >= at[piece + 1]:
            piece += 1
            slope = (curve[piece + 1] - curve[piece]) / (at[piece + 1] - at[piece])
        values[i] = curve[piece] + slope * max(first + i - at[piece], 0.0) + more
    return values


def _knots(max_tokens: int) -> list[int]:
    knots = [knot for knot in _SMALL_KNOTS if knot < max_tokens]
    while knots and knots[-1] >= _SMALL_KNOTS[-1] and 2 * knots[-1] < max_tokens:
        knots.append(2 * knots[-1])
    return [*knots, max_tokens] if knots else [1, 2]


def _clean(probe: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns the probe's median time by number of tokens, ascending."""
    times: dict[int, list[float]] = {}
    for num_tokens, seconds in probe:
        if num_tokens >= 1 and SMALLEST < seconds < LARGEST:
            times.setdefault(num_tokens, []).append(seconds)
    return [(num_tokens, float(np.median(times[num_tokens]))) for num_tokens in sorted(times)]


def _shape(at: Floats, probed: list[tuple[int, float]]) -> Floats:
    """Returns [num_knots], seconds at the knots: the non-decreasing interpolation of the probe."""
    guess: Floats = _UNKNOWN_FIXED_SHARE + (1 - _UNKNOWN_FIXED_SHARE) * at
    if not probed:
        guess *= _UNKNOWN_SECONDS
        return guess
    sizes, times = (np.array(column, np.float64) for column in zip(*probed, strict=True))
    if len(sizes) == 1:
        guess *= times[0] / np.interp(sizes[0], at, guess)
        return guess
    times = np.maximum.accumulate(times)
    slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    shape: Floats = np.interp(at, sizes, times)
    shape += slope * np.maximum(at - sizes[-1], 0)
    return shape


def _covariance(
    at: Floats, shape: Floats, factor: float, offset: float, individual: float, others: Sequence[float]
) -> Floats:
    """Returns the prior covariance, square: of the knots, then of the other costs, by their standard deviations."""
    distance = np.abs(np.log(at)[:, None] - np.log(at))
    knots = (factor**2 + individual**2 * np.exp(-distance / _CORRELATION_LENGTH)) * np.outer(shape, shape)
    knots += (offset * shape[0]) ** 2
    covariance = np.diag(np.append(shape, [share * shape[0] for share in others]) ** 2)
    covariance[: len(at), : len(at)] = knots
    return covariance
