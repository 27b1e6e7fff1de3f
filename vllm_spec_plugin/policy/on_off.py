"""Compares measured steps with drafts and without, and decides when drafting is off."""

import math
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.policy.control import Off
from vllm_spec_plugin.policy.on_off_window import ComparedStep, Window, winsorised_mean
from vllm_spec_plugin.policy.step_cost import StepCost

# Maximum shares of the time: for blocks without drafts where drafting gains, and for retrials where it lost.
SHARE, RETRY_SHARE = 0.005, 0.02
# Steps before the first draft, of a block without drafts, and of a block with drafts while the verdict is not
# significant.
_FIRST_OFF, _OFF_BLOCK, _ON_BLOCK = 4, 8, 16
# First steps of a block without drafts that do not count: caches are full of drafting, which makes steps of 2 ms take
# up to 1.3 times as long.
_NUM_COLD = 4
# Maximum compared steps with drafts and without, minimum of both, and steps between two comparisons.
_ON_WINDOW, _OFF_WINDOW, _MIN_STEPS, _EVERY = 32, 16, 3, 3
# While drafting stays off for long, one of this many steps is measured.
_MEASURED_EACH = 16
# Last steps without drafts before a retrial, in which vLLM's heads run, so that they have recent keys and values.
_NUM_WARM = 8
# Number of latest steps with drafts whose mean shows an outdated verdict.
_RECENT = 12
# Standard errors of a significant difference.
_SIGMAS = 2.0
# Minimum price of a step without drafts, as a share of it.
_MIN_PRICE = 0.02
# Maximum steps between two blocks without drafts; steps from a loss to the first retrial, and their maximum.
_MAX_ON, _FIRST_RETRY, _LAST_RETRY = 2048, 128, 8192
# Prior of the ratio of accepted to expected tokens, in expected tokens, and its decay per step.
_TRUST = 8.0
_TRUST_FADE = 0.99
# Maximum time of a compared step with prefills, in steps without drafts.
_MAX_PREFILL = 3.0
# Steps over which the cost of catching up with a request's text is spread, as drafting for it usually continues.
CATCH_UP_STEPS = 32


class DraftingGain(NamedTuple):
    """Measured gain of drafting, in steps without drafts.

    Attributes:
        gain: accepted draft tokens per request, less the additional time; above 0 drafting gains.
        error: standard error of `gain`.
    """

    gain: float
    error: float


class OnOffComparison:
    """Decides per class of batch size whether to draft at all, by alternating blocks of steps with drafts and without.

    A step with drafts gains accepted tokens and takes longer. Both count in steps without drafts: with n requests and m
    accepted tokens, the gain of drafting in a step is

        m / n - (seconds / f - T) / T0,

    where T is the modelled time of the same step without its drafts, so that prefills and the growth of texts cancel,
    and T0 that of a step of n tokens. f corrects the model: the mean of seconds / T of steps without drafts. The gain
    includes the time of plugin, proposers, catch-up and rollback. Means are winsorised against outliers. Expected
    tokens replace accepted ones, corrected by the ratio of both over many drafts, as a request's accepted tokens vary
    far more than its seconds.

    A step that only verifies drafts is charged with the step that only made them, so that blocks have no ends.

    A class begins without drafts. Then blocks with and without drafts alternate. Until the verdict is significant, a
    third of the steps has no drafts; then `SHARE` of the time. After a significant loss, or a full window without a
    gain, a block without drafts follows. Drafting is off if it also loses against that block, so that a temporarily
    slow machine does not count as a loss. It is tried again after 128 steps, then twice as many, and so on, and not
    before `RETRY_SHARE` of the time has paid for the last trial's loss. That loss is robust as well: a pause of the
    machine during a trial is no price of drafting. Only catch-up counts in full.

    Classes are powers of two of the number of requests.
    """

    def __init__(self) -> None:
        self._classes: dict[int, _BatchSizeClass] = {}

    def is_off(self, num_requests: int) -> bool:
        """Whether the next step has no drafts."""
        return self._of(num_requests).is_off

    def off(self, num_requests: int) -> Off:
        """For how long there are no drafts, from the next step on; before a retrial `NOT`."""
        return self._of(num_requests).off

    def is_sure(self, num_requests: int) -> bool:
        """Whether drafting gains significantly."""
        return self._of(num_requests).is_sure

    def verdict(self, num_requests: int) -> DraftingGain | None:
        """Returns the latest verdict; None without one."""
        return self._of(num_requests).verdict

    def skips(self, num_requests: int) -> bool:
        """Counts a step without drafts unmeasured, if drafting stays off for long; returns whether it did."""
        return self._of(num_requests).skips()

    def measured(self, step: ComparedStep, cost: StepCost) -> None:
        """Updates the step's class.

        Args:
            step: the finished step.
            cost: cost model of the target's steps.
        """
        self._of(step.num_requests).measured(step, cost)

    def _of(self, num_requests: int) -> "_BatchSizeClass":
        size = num_requests.bit_length()
        if size not in self._classes:
            self._classes[size] = _BatchSizeClass()
        return self._classes[size]


class _BatchSizeClass:
    """A class of batch sizes.

    Attributes:
        is_off: whether the next step has no drafts.
        verdict: result of the latest comparison; None without one.
    """

    def __init__(self) -> None:
        self._on, self._off = Window(_ON_WINDOW), Window(_OFF_WINDOW)
        # Steps without drafts since an apparent loss; None without one.
        self._num_confirming: int | None = None
        self._retry = _FIRST_RETRY
        self.is_off, self._left, self._num_cold = True, _FIRST_OFF, 0
        # Whether drafting is off after a verdict.
        self._has_lost = False
        self.verdict: DraftingGain | None = None
        self._since = 0
        # Decaying sums of expected and accepted draft tokens, and the variance of their difference.
        self._expected = self._accepted = self._chance = _TRUST
        # Seconds of catch-up not yet charged, and additional seconds of the latest step that only made drafts.
        self._catch_up_due = self._unverified_seconds = 0.0
        # Losses of the first steps with drafts since the latest retrial, and all of their catch-up, in steps without.
        self._lost: list[float] = []
        self._caught_up = 0.0

    def skips(self) -> bool:
        """See `OnOffComparison.skips`; one of `_MEASURED_EACH` steps is measured nevertheless."""
        if not self._has_lost or self._left <= _OFF_WINDOW or self._left % _MEASURED_EACH == 0:
            return False
        self._left -= 1
        return True

    @property
    def off(self) -> Off:
        """See `OnOffComparison.off`."""
        if not self._has_lost:
            return Off.SHORT if self.is_off else Off.NOT
        return Off.LONG if self._left > _NUM_WARM else Off.NOT

    def measured(self, step: ComparedStep, cost: StepCost) -> None:
        """Updates the comparison by a step, and decides on the next one."""
        plain = cost.seconds((step.num_tokens, step.num_requests), step.num_requests, step.context)
        if step.verifies or step.drafts:
            if len(self._lost) <= _ON_WINDOW:
                excess = step.seconds - step.catch_up_seconds - float(plain[0])
                self._lost.append(excess / float(plain[1]) - step.accepted / step.num_requests)
                self._caught_up += step.catch_up_seconds / float(plain[1])
            step = self._spread(step)
        if plain[0] <= _MAX_PREFILL * plain[1]:
            self._note(step, step.seconds - float(plain[0]))
        if self.is_off or step.verifies or step.drafts:
            self._left -= 1
        if self._since >= _EVERY:
            self._since = 0
            self._judge(cost)
        if self._left <= 0:
            self._turn(cost)

    def _note(self, step: ComparedStep, excess: float) -> None:
        """Adds a step to its window."""
        if step.verifies:
            if not step.drafts:
                step = step._replace(seconds=step.seconds + self._unverified_seconds)
                self._unverified_seconds = 0.0
            self._expected = _TRUST_FADE * self._expected + step.expected
            self._accepted = _TRUST_FADE * self._accepted + step.accepted
            self._chance = _TRUST_FADE**2 * self._chance + (step.accepted - step.expected) ** 2
            self._on.append(step)
            self._since += 1
        elif step.drafts:
            self._unverified_seconds = excess
        elif self._num_cold:
            self._num_cold -= 1
        elif not step.planned:
            self._off.append(step)
            if self._num_confirming is not None:
                self._num_confirming += 1

    def _spread(self, step: ComparedStep) -> ComparedStep:
        """Spreads the cost of catch-up over `CATCH_UP_STEPS` steps."""
        self._catch_up_due += step.catch_up_seconds
        charge = self._catch_up_due / CATCH_UP_STEPS
        self._catch_up_due -= charge
        return step._replace(seconds=step.seconds - step.catch_up_seconds + charge)

    def _judge(self, cost: StepCost) -> None:
        """Compares the windows, and begins a block without drafts to confirm an apparent loss."""
        if min(len(self._on), len(self._off)) < _MIN_STEPS:
            return
        slowdown, error_without = winsorised_mean(_slowdowns(self._off.rows, cost))
        gains, took = self._gains(cost, slowdown)
        gain, error = winsorised_mean(gains)
        luck = math.sqrt(self._chance) / self._expected * self._on.expected_per_request()
        error = math.hypot(error, took * error_without / slowdown, luck)
        self.verdict = DraftingGain(gain, error)
        is_full = len(gains) == _ON_WINDOW
        if gain + _SIGMAS * error < 0 or (is_full and gain < 0):
            self._num_confirming = 0
            self._pause()
        elif is_full and winsorised_mean(gains[-_RECENT:])[0] < 0:
            # The window of steps without drafts may be out of date.
            self._restart(_RECENT)
        elif self.is_sure:
            self._retry = _FIRST_RETRY

    def _confirm(self, cost: StepCost) -> None:
        """Switches drafting off if it also loses against the steps without drafts that followed."""
        num_fresh, self._num_confirming, self.verdict = self._num_confirming or 0, None, None
        if num_fresh and len(self._on):
            slowdown, _ = winsorised_mean(_slowdowns(self._off.rows[-num_fresh:], cost))
            if winsorised_mean(self._gains(cost, slowdown)[0])[0] < 0:
                self._on.keep(0)
                self.is_off, self._left, self._has_lost = True, max(self._retry, self._price()), True
                self._retry = min(2 * self._retry, _LAST_RETRY)
                self._lost, self._caught_up = [], 0.0
                return
            self._off.keep(num_fresh)
        self._on.keep(0)
        self.is_off, self._left = False, _ON_BLOCK

    def _price(self) -> int:
        """Returns the steps without drafts that pay for the latest trial; 0 if drafting had gained for a while before.

        What was measured has a maximum, as a slow machine may make all steps of a trial slow. Catch-up is modelled.
        """
        if len(self._lost) > _ON_WINDOW:
            return 0
        lost = len(self._lost) * winsorised_mean(np.array(self._lost))[0]
        return int(min(lost / RETRY_SHARE, _LAST_RETRY) + self._caught_up / RETRY_SHARE)

    @property
    def is_sure(self) -> bool:
        """Whether drafting gains significantly."""
        return self.verdict is not None and self.verdict.gain > _SIGMAS * self.verdict.error

    def _gains(self, cost: StepCost, slowdown: float) -> tuple[Floats, float]:
        """Returns [n], the gain of each step with drafts, and their mean time, in steps without drafts.

        Args:
            cost: cost model of the target's steps.
            slowdown: seconds of steps without drafts over the modelled ones.
        """
        tokens, requests, context, seconds, expected = self._on.rows.T
        plain = cost.seconds_of(tokens, requests, context)
        one = plain if (tokens == requests).all() else cost.seconds_of(requests, requests, context)
        took: Floats = seconds / slowdown / one
        gains: Floats = expected * (self._accepted / self._expected) / requests - took + plain / one
        return gains, float(took.mean())

    def _restart(self, num_kept: int) -> None:
        """Restarts the comparison with the latest steps with drafts and new ones without."""
        self._on.keep(num_kept)
        self._off.keep(0)
        self.verdict = None
        self._pause()

    def _pause(self) -> None:
        """Begins a block without drafts."""
        self.is_off, self._left, self._num_cold = True, _OFF_BLOCK, _NUM_COLD

    def _turn(self, cost: StepCost) -> None:
        """Ends a block and begins the next one."""
        if self._num_confirming is not None:
            self._confirm(cost)
        elif self.is_off:
            self.is_off, self._left, self._has_lost = False, self._num_on(), False
        else:
            self._pause()

    def _num_on(self) -> int:
        """Returns the number of steps of the next block with drafts."""
        if self.verdict is None or not self.is_sure:
            return _ON_BLOCK
        price = (_OFF_BLOCK - 1) * max(self.verdict.gain, _MIN_PRICE)
        return int(min(max(price / SHARE, _ON_BLOCK), _MAX_ON))


def _slowdowns(steps: Floats, cost: StepCost) -> Floats:
    """Returns [n], seconds of steps over modelled ones.

    Args:
        steps: [n, 5], as `Window.rows`.
        cost: cost model of the target's steps.
    """
    tokens, requests, context, seconds, _ = steps.T
    slowdowns: Floats = seconds / cost.seconds_of(tokens, requests, context)
    return slowdowns
