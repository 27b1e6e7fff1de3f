"""Compares measured steps with drafts and without, and decides when drafting is off."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats, compiled
from vllm_spec_plugin.policy.control import Off
from vllm_spec_plugin.policy.memory import Verdict
from vllm_spec_plugin.policy.step_cost import StepTimes, plain_seconds

# Maximum shares of the time: for blocks without drafts where drafting gains, and for retrials where it lost.
SHARE, RETRY_SHARE = 0.005, 0.02
# Steps before the first draft, of a block without drafts, and of a block with drafts while the verdict is not
# significant.
_FIRST_OFF, _OFF_BLOCK, _ON_BLOCK = 4, 8, 16
# First steps of a block without drafts that do not count: caches are full of drafting, which makes steps of 2 ms take
# up to 1.3 times as long.
_NUM_COLD = 4
# Compared steps with drafts and without: maximum and minimum of both; and steps between two comparisons.
_ON_WINDOW, _OFF_WINDOW, _MIN_ON, _MIN_OFF, _EVERY = 32, 16, 6, 3, 3
# Last steps without drafts before a retrial, in which vLLM's heads run, so that they have recent keys and values.
_NUM_WARM = 8
# Standard errors of a significant difference; minimum noise of a step, as a share of a step without drafts.
_SIGMAS, _NOISE = 2.0, 0.05
# Minimum price of a step without drafts, as a share of it.
_MIN_PRICE = 0.02
# Maximum steps between two blocks without drafts; steps from a loss to the first retrial, and their maximum.
_MAX_ON, _FIRST_RETRY, _LAST_RETRY = 2048, 16, 8192
# Maximum steps for which a former server's verdict holds without a comparison.
_MAX_REMEMBERED = 256
# Maximum gain, in steps without drafts, that a later loss may use up before it counts.
_MAX_CREDIT = 8.0
# Prior of the ratio of accepted to expected tokens, in expected tokens, and its decay per step.
_TRUST, _TRUST_FADE = 8.0, 0.99
# Maximum time of a compared step with prefills, in steps without drafts.
_MAX_PREFILL = 3.0
# Steps over which the cost of catching up with a request's text is spread, as drafting for it usually continues.
CATCH_UP_STEPS = 32


class ComparedStep(NamedTuple):
    """A finished step, for the comparison.

    Attributes:
        num_tokens: tokens that the target computed, without drafts.
        num_requests: number of requests in the step.
        context: total tokens of their texts.
        seconds: time from the step's planning to the next one's.
        expected: expected accepted draft tokens, all requests together.
        accepted: accepted draft tokens, all requests together.
        catch_up_seconds: seconds in which a proposer computed missing text.
        has_drafts: whether the step verified drafts or made them.
        is_planned: whether a plan was made for it, which takes time even if it has no drafts.
    """

    num_tokens: int
    num_requests: int
    context: int
    seconds: float
    expected: float = 0.0
    accepted: float = 0.0
    catch_up_seconds: float = 0.0
    has_drafts: bool = False
    is_planned: bool = False


class DraftingGain(NamedTuple):
    """Measured gain of drafting, in steps without drafts.

    Attributes:
        gain: accepted draft tokens per request, less the additional time; above 0 drafting gains.
        error: standard error of `gain`.
    """

    gain: float
    error: float

    @property
    def is_sure(self) -> bool:
        """Whether drafting gains significantly."""
        return self.gain > _SIGMAS * self.error


class OnOffComparison:
    """Decides for a class of batch sizes whether to draft at all, by alternating blocks with drafts and without.

    A step with drafts gains accepted tokens and takes longer. Both count in steps without drafts: with n requests and m
    accepted tokens, the gain of drafting in a step is

        m / n - (seconds / f - T) / T0,

    where T is the modelled time of the same step without its drafts, so that prefills and the growth of texts cancel,
    and T0 that of a step of n tokens. f corrects the model: the mean of seconds / T of steps without drafts. The gain
    includes the time of plugin, proposers, catch-up and rollback. Means are winsorised against outliers. Expected
    tokens replace accepted ones, corrected by the ratio of both over many drafts, as a request's accepted tokens vary
    far more than its seconds.

    A class begins without drafts. Then blocks with and without drafts alternate. Until the verdict is significant, a
    third of the steps has no drafts; then `SHARE` of the time. After a significant loss, or a full window without a
    gain, a block without drafts follows, once the loss has used up what drafting gained just before: text that
    alternates between much gain and a small loss keeps its drafts. Drafting is off if it also loses against that block,
    so that a temporarily slow machine does not count as a loss. It is tried again after 16 steps, then twice as many,
    and so on, and not before `RETRY_SHARE` of the time has paid for the last trial's loss, of which only catch-up
    counts in full: a pause of the machine during a trial is no price of drafting.

    Attributes:
        is_off: whether the next step has no drafts.
        verdict: result of the latest comparison; None without one.
    """

    def __init__(self, learned: Verdict | None = None, *, must_gain: bool = False) -> None:
        """Starts without steps.

        Args:
            learned: verdict of a former server, which holds until there are enough steps; None without one.
            must_gain: whether drafting gains by any likely acceptance: its trial begins at once.
        """
        self.is_off, self._left, self._num_cold = not must_gain, _ON_BLOCK if must_gain else _FIRST_OFF, 0
        self.verdict: DraftingGain | None = None
        # The latest steps with drafts and without, the last one last: tokens, requests, context, seconds, expected.
        self._on, self._without = np.zeros((_ON_WINDOW, 5)), np.zeros((_OFF_WINDOW, 5))
        self._num_on = self._num_without = 0
        # Steps without drafts since an apparent loss; None without one. Whether drafting is off after a verdict.
        self._num_confirming: int | None = None
        self._retry, self._has_lost = _FIRST_RETRY, False
        # Steps with drafts since the last comparison, and since the latest retrial.
        self._since = self._num_tried = 0
        # Decaying sums of expected and accepted draft tokens, and the variance of their difference.
        self._expected = self._accepted = self._chance = _TRUST
        # Gain of the latest steps with drafts, in steps without.
        self._credit = 0.0
        # Catch-up that is not yet charged, in seconds.
        self._catch_up_due = 0.0
        if learned is not None:
            self._expected, self._accepted = max(learned.expected, _TRUST), max(learned.accepted, 1.0)
            self._has_lost = self.is_off = learned.retry > 0
            self._left = min(learned.retry, _MAX_REMEMBERED) or _MAX_REMEMBERED
            if not self.is_off:
                self.verdict = DraftingGain(learned.gain, learned.error)
            self._retry = max(learned.retry, _FIRST_RETRY)

    def learned(self) -> Verdict | None:
        """Returns the verdict for a later server; None without a loss or a significant gain."""
        if self._has_lost:
            return Verdict(gain=0.0, error=0.0, retry=self._retry, expected=self._expected, accepted=self._accepted)
        if self.verdict is None or not self.verdict.is_sure:
            return None
        gain, error = self.verdict
        return Verdict(gain=gain, error=error, retry=0, expected=self._expected, accepted=self._accepted)

    @property
    def off(self) -> Off:
        """For how long there are no drafts, from the next step on; before a retrial `NOT`."""
        if not self._has_lost:
            return Off.SHORT if self.is_off else Off.NOT
        return Off.LONG if self._left > _NUM_WARM else Off.NOT

    def measured(self, step: ComparedStep, times: StepTimes) -> None:
        """Updates the comparison by a step, and decides on the next one.

        Args:
            step: the finished step, of a batch of this class.
            times: expected seconds of the target's steps.
        """
        plain, one = _expected(times, step.num_tokens, step.num_requests, step.context)
        seconds = step.seconds
        if step.has_drafts:
            self._catch_up_due += step.catch_up_seconds
            charge = self._catch_up_due / CATCH_UP_STEPS
            self._catch_up_due -= charge
            seconds += charge - step.catch_up_seconds
            self._num_tried += 1
        if plain <= _MAX_PREFILL * one:
            self._note(step, seconds)
        if self.is_off or step.has_drafts:
            self._left -= 1
        if self._since >= _EVERY:
            self._since = 0
            self._judge(times)
        if self._left <= 0:
            self._turn(times, one)

    def _note(self, step: ComparedStep, seconds: float) -> None:
        """Adds a step to its window; `seconds` is its time with its share of the cost of catching up."""
        row = step.num_tokens, step.num_requests, step.context, seconds, step.expected
        if step.has_drafts:
            self._expected = _TRUST_FADE * self._expected + step.expected
            self._accepted = _TRUST_FADE * self._accepted + step.accepted
            self._chance = _TRUST_FADE**2 * self._chance + (step.accepted - step.expected) ** 2
            self._num_on, self._since = _append(self._on, self._num_on, row), self._since + 1
        elif self._num_cold:
            self._num_cold -= 1
        elif not step.is_planned:
            self._num_without = _append(self._without, self._num_without, row)
            if self._num_confirming is not None:
                self._num_confirming += 1

    def _judge(self, times: StepTimes) -> None:
        """Compares the windows, and begins a block without drafts to confirm an apparent loss."""
        if self._num_on < _MIN_ON or self._num_without < _MIN_OFF:
            return
        self.verdict = verdict = self._compared(times, self._num_without)
        self._credit = min(max(self._credit + _EVERY * verdict.gain, 0.0), _MAX_CREDIT)
        is_full = self._num_on == _ON_WINDOW
        loses = verdict.gain + _SIGMAS * verdict.error < 0 or (is_full and verdict.gain < 0)
        if loses and not self._credit:
            self._num_confirming = 0
            self._pause()
        elif verdict.is_sure:
            self._retry = _FIRST_RETRY

    def _compared(self, times: StepTimes, num_without: int) -> DraftingGain:
        """Compares steps with drafts with the latest ones without."""
        on, without = self._on[_ON_WINDOW - self._num_on :], self._without[_OFF_WINDOW - num_without :]
        gain, error = _compare(on, without, self._accepted / self._expected, times)
        luck = math.sqrt(self._chance) / self._expected * float((on[:, 4] / on[:, 1]).mean())
        return DraftingGain(gain, math.hypot(error, luck))

    def _turn(self, times: StepTimes, one: float) -> None:
        """Ends a block and begins the next one; `one` is the expected time of a step without drafts, in seconds."""
        if self._num_confirming is None:
            if not self.is_off:
                self._pause()
                return
            self.is_off, self._left = False, self._num_drafting()
            if self._has_lost:
                self._has_lost, self._num_tried = False, 0
            return
        num_fresh, self._num_confirming, self.verdict = self._num_confirming, None, None
        compared = self._compared(times, num_fresh) if num_fresh and self._num_on else None
        self._num_on = 0
        if compared is None or compared.gain >= 0:
            self.is_off, self._left, self._num_without = False, _ON_BLOCK, num_fresh or self._num_without
            return
        # Drafting that had gained for a while before has paid for its loss.
        lost = 0.0 if self._num_tried > _ON_WINDOW + _EVERY else -compared.gain * self._num_tried
        price = min(lost / RETRY_SHARE, _LAST_RETRY) + self._catch_up_due / one / RETRY_SHARE
        self.is_off, self._left, self._has_lost = True, max(self._retry, int(price)), True
        self._retry, self._catch_up_due = min(2 * self._retry, _LAST_RETRY), 0.0

    def _pause(self) -> None:
        """Begins a block without drafts."""
        self.is_off, self._left, self._num_cold = True, _OFF_BLOCK, _NUM_COLD

    def _num_drafting(self) -> int:
        """Returns the number of steps of the next block with drafts."""
        if self.verdict is None or not self.verdict.is_sure:
            return _ON_BLOCK
        price = (_OFF_BLOCK - 1) * max(self.verdict.gain, _MIN_PRICE)
        return int(min(max(price / SHARE, _ON_BLOCK), _MAX_ON))


def _append(window: Floats, count: int, row: Sequence[float]) -> int:
    """Adds a step to a window, without the oldest of a full one, and returns the new number of steps."""
    window[:-1] = window[1:]
    window[-1] = row
    return min(count + 1, len(window))


@compiled
def _expected(times: StepTimes, num_tokens: int, num_requests: int, context: int) -> tuple[float, float]:
    """Returns the expected seconds of a step without drafts, and of one with a token per request."""
    plain = plain_seconds(times, num_tokens, num_requests, context)
    return plain, plain_seconds(times, num_requests, num_requests, context)


@compiled
def _compare(on: Floats, without: Floats, trust: float, times: StepTimes) -> tuple[float, float]:
    """Returns the mean gain of steps with drafts over steps without, and its standard error from both.

    Args:
        on: [n, 5], steps with drafts.
        without: [m, 5], steps without.
        trust: accepted tokens per expected one.
        times: expected seconds of the target's steps.
    """
    slowdowns, gains, took = np.empty(len(without)), np.empty(len(on)), 0.0
    for i in range(len(without)):
        step = without[i]
        slowdowns[i] = step[3] / plain_seconds(times, step[0], step[1], step[2])
    slowdown, error_without = _winsorised_mean(slowdowns)
    for i in range(len(on)):
        step = on[i]
        one, plain = plain_seconds(times, step[1], step[1], step[2]), plain_seconds(times, step[0], step[1], step[2])
        duration = step[3] / slowdown / one
        gains[i] = step[4] * trust / step[1] - duration + plain / one
        took += duration / len(on)
    gain, error = _winsorised_mean(gains)
    return gain, math.hypot(error, took * error_without / slowdown)


@compiled
def _winsorised_mean(values: Floats) -> tuple[float, float]:
    """Returns the winsorised mean, by a tenth of the values at each end, rounded up; and its standard error."""
    ordered, count = np.sort(values), len(values)
    trimmed = -(-count // 10) if count > 2 else 0
    ordered[:trimmed] = ordered[trimmed]
    ordered[count - trimmed :] = ordered[count - trimmed - 1]
    return ordered.mean(), max(ordered.std(), _NOISE) / math.sqrt(count)
