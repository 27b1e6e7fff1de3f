"""Models the time of a target's step, and that of drafting in it, by regression on measured steps."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, compiled
from vllm_spec_plugin.policy.regression import LARGEST, SMALLEST, Regression, learn

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
# Costs that are not on the curve: per request, per token of context, of a step with drafts, and per request of such a
# step; where drafting is part of the step also per pass of the drafter, per draft token, and of a step with requests of
# unequal lengths. Their prior means and standard deviations, as shares of a step of one token.
_NUM_OTHERS, REQUEST, CONTEXT, DRAFTS, DRAFTED, PASS, ROW, UNEVEN = 4, 0, 1, 2, 3, 4, 5, 6
_OTHERS = (0.0, 0.0, 0.0, 0.0, 0.1, 0.005, 0.0)
_OF_OTHERS = (0.03, 3e-5, 0.5, 0.02, 0.1, 0.005, 0.2)


class StepTimes(NamedTuple):
    """Expected seconds of steps of a target.

    Attributes:
        at: [n + 1], tokens at the curve's knots, ascending, n at least 2, and the end of the extrapolated last piece.
        curve: [n + 1], seconds at these; non-decreasing.
        others: [4 or 7], seconds of `REQUEST`, `CONTEXT`, `DRAFTS`, `DRAFTED` and, of a drafter whose time is part of
            the step's, `PASS`, `ROW`, `UNEVEN`.
    """

    at: Floats
    curve: Floats
    others: Floats


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

    Attributes:
        times: the present model; read-only.
    """

    def __init__(
        self,
        max_tokens: int,
        probe: Sequence[tuple[float, float]] = (),
        others: Sequence[float] = (),
        *,
        has_drafter: bool = False,
    ) -> None:
        """Starts from the probe, or without one from a guess.

        Args:
            max_tokens: maximum tokens of a step.
            probe: (num_tokens, seconds) of dummy steps at start-up, in any order, sizes may repeat; impossible pairs
                are ignored.
            others: prior of `StepTimes.others`; empty for a guess.
            has_drafter: whether measured seconds include drafting.

        Raises:
            ValueError: `max_tokens` is below 1.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        at, probed = np.array(_knots(max_tokens), np.float64), _clean(probe)
        shape, count = _shape(at, probed), len(_OTHERS) if has_drafter else _NUM_OTHERS
        covariance = _covariance(at, shape, *(_PROBED if probed else _UNKNOWN), _OF_OTHERS[:count])
        guess = np.array(_OTHERS[:count]) * shape[0]
        mean = np.append(shape, others if len(others) == count else guess)
        self._regression, self._prior_level = Regression.of(mean, covariance, range(len(at), len(mean))), float(mean[0])
        self.times = StepTimes(np.append(at, _FAR), np.empty(len(at) + 1), self._regression.weights[len(at) :])
        _draw(self._regression.weights, self.times)

    @property
    def num_observations(self) -> int:
        """Number of observed steps; before the first one the prior holds."""
        return int(self._regression.num_seen[0])

    @property
    def level(self) -> float:
        """Measured seconds over the prior's: the median of the first five observations; 1 before the fifth."""
        return float(self._regression.mean[0]) / self._prior_level

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
        if num_tokens < 1 or num_requests < 0 or context < 0:
            num_requests, context, seconds = max(num_requests, 0), max(context, 0), 0.0
        return _observe(self._regression, self.times, num_tokens, num_requests, context, seconds, has_drafts, *drafter)

    def seconds(self, num_tokens: npt.ArrayLike, num_requests: int, context: int) -> Floats:
        """Returns expected seconds of steps without drafts, in the shape of `num_tokens`; positive, non-decreasing.

        Args:
            num_tokens: scheduled tokens of each step, any shape; below 1 counts as 1, beyond `max_tokens` the curve is
                extrapolated.
            num_requests: number of requests of each step.
            context: total tokens of context of these requests.
        """
        expected: Floats = np.interp(np.asarray(num_tokens, np.float64), self.times.at, self.times.curve)
        expected += max(num_requests, 0) * self.times.others[REQUEST] + max(context, 0) * self.times.others[CONTEXT]
        return expected


@compiled
def plain_seconds(times: StepTimes, num_tokens: float, num_requests: float, context: float) -> float:
    """Returns the expected seconds of a step without drafts, as `StepCost.seconds`."""
    seconds: float = _on_curve(times, num_tokens)
    seconds += num_requests * times.others[REQUEST] + context * times.others[CONTEXT]
    return seconds


@compiled
def write_seconds(times: StepTimes, num_tokens: int, num_requests: int, context: int, steps: Floats) -> None:
    """Writes the expected seconds of a step of `num_tokens` tokens and 0, 1, 2, ... draft tokens."""
    at, curve, piece = times.at, times.curve, _piece(times, num_tokens)
    for i in range(len(steps)):
        while piece + 2 < len(at) and num_tokens + i >= at[piece + 1]:
            piece += 1
        slope = (curve[piece + 1] - curve[piece]) / (at[piece + 1] - at[piece])
        steps[i] = curve[piece] + slope * max(num_tokens + i - at[piece], 0.0)
    steps[:] += num_requests * times.others[REQUEST] + context * times.others[CONTEXT]
    steps[1:] += times.others[DRAFTS] + num_requests * times.others[DRAFTED]


@compiled
def _piece(times: StepTimes, num_tokens: float) -> int:
    """Returns the index of the knot at which the curve's piece begins."""
    piece = 0
    while piece + 2 < len(times.at) and num_tokens >= times.at[piece + 1]:
        piece += 1
    return piece


@compiled
def _on_curve(times: StepTimes, num_tokens: float) -> float:
    at, curve, piece = times.at, times.curve, _piece(times, num_tokens)
    slope = (curve[piece + 1] - curve[piece]) / (at[piece + 1] - at[piece])
    seconds: float = curve[piece] + slope * max(num_tokens - at[piece], 0.0)
    return seconds


@compiled
def _observe(
    model: Regression,
    times: StepTimes,
    num_tokens: int,
    num_requests: int,
    context: int,
    seconds: float,
    has_drafts: bool,
    passes: int,
    rows: int,
    is_uneven: bool,
) -> float:
    """Updates model and times by a step; see `StepCost.observe`."""
    features, num_knots = np.zeros(len(model.weights)), len(times.at) - 1
    others = features[num_knots:]
    others[REQUEST], others[CONTEXT] = num_requests, context
    others[DRAFTS], others[DRAFTED] = has_drafts, has_drafts * num_requests
    if len(others) > UNEVEN:
        others[PASS], others[ROW], others[UNEVEN] = passes, rows, is_uneven
    predicted: float = _on_curve(times, num_tokens)
    predicted += (others * times.others).sum()
    if SMALLEST < seconds < LARGEST:
        lower = min(_piece(times, num_tokens), num_knots - 2)
        share = max(0.0, (num_tokens - times.at[lower]) / (times.at[lower + 1] - times.at[lower]))
        features[lower], features[lower + 1] = 1 - share, share
        learn(model, features, seconds)
        _draw(model.weights, times)
    return predicted


@compiled
def _draw(weights: Floats, times: StepTimes) -> None:
    """Writes the positive, non-decreasing curve with the smallest maximum distance from the learnt values."""
    at, curve = times.at, times.curve
    num_knots = len(at) - 1
    highest, minimum = weights[0], weights[num_knots - 1]
    for i in range(num_knots):
        highest = max(highest, weights[i])
        curve[i] = highest
    for i in range(num_knots - 1, -1, -1):
        minimum = min(minimum, weights[i])
        curve[i] = max((curve[i] + minimum) * 0.5, SMALLEST)
    slope = (curve[num_knots - 1] - curve[num_knots - 2]) / (at[num_knots - 1] - at[num_knots - 2])
    curve[num_knots] = curve[num_knots - 1] + slope * (at[num_knots] - at[num_knots - 1])


def _knots(max_tokens: int) -> list[int]:
    knots = [knot for knot in _SMALL_KNOTS if knot < max_tokens]
    while knots and knots[-1] >= _SMALL_KNOTS[-1] and 2 * knots[-1] < max_tokens:
        knots.append(2 * knots[-1])
    return [*knots, max_tokens] if knots else [1, 2]


def _clean(probe: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the probe's median time by number of tokens, ascending."""
    times: dict[float, list[float]] = {}
    for num_tokens, seconds in probe:
        if num_tokens >= 1 and SMALLEST < seconds < LARGEST:
            times.setdefault(num_tokens, []).append(seconds)
    return [(num_tokens, float(np.median(times[num_tokens]))) for num_tokens in sorted(times)]


def _shape(at: Floats, probed: list[tuple[float, float]]) -> Floats:
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
