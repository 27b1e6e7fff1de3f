"""Compares steps with drafts against steps without any, by measurement, and says when drafting loses."""

import math
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.scheduling.draft_length.step_cost import StepCost

# Shares of the time: for blocks without drafts where these look worse, and for trying again what lost.
SHARE, RETRY_SHARE = 0.005, 0.02
# Steps without drafts before the first draft, of a block without drafts (its first step still verifies), and of a block
# with drafts while it is not known which is better.
_FIRST_OFF, _OFF_BLOCK, _ON_BLOCK = 4, 4, 16
# Most measured steps of either kind that are compared, fewest that are, and steps from one comparison to the next.
_ON_WINDOW, _OFF_WINDOW, _LEAST, _EVERY = 32, 16, 3, 3
# While drafting stays off for long, one step in this many is measured.
_MEASURED_EACH = 4
# Steps with drafts whose mean says that the verdict may be out of date.
_RECENT = 12
# Standard errors of a significant difference; the noise of a step is at least this share of it.
_SIGMAS, _NOISE = 2.0, 0.05
# Gains, as shares of a step without drafts: what a full window must show at least for drafting to go on, and what a
# block without drafts is thought to cost at least.
_LEAST_GAIN, _LEAST_PRICE = 0.0, 0.02
# Most steps between two blocks without drafts, and steps from a lost comparison to the next, at first and at most.
_LONGEST_ON, _FIRST_RETRY, _LAST_RETRY = 1024, 128, 8192
# Expected accepted tokens that the forecasts' correctness is taken for granted with.
_TRUST = 8.0
_TRUST_FADE = 0.99
# Times a step without drafts that one with prefills may take to be compared.
_MOST_PREFILL = 3.0
# Steps over which catching up with a request's tokens is charged: once begun, drafting for it is likely to go on.
CATCH_UP_STEPS = 32


class ComparedStep(NamedTuple):
    """A step that is over, as far as comparing needs it.

    Attributes:
        num_tokens: tokens that the target computed, without drafts.
        num_requests: requests in the step.
        context: tokens in their texts, added up.
        seconds: from the step's planning to the next one's.
        expected: draft tokens expected to be accepted, of all requests.
        accepted: draft tokens accepted, of all requests.
        catch_up_seconds: seconds in which a proposer computed text that it had not seen.
        verifies: whether drafts were verified in it.
        drafts: whether drafts were made in it.
        planned: whether drafts were planned for it: that takes time, even if there are none.
    """

    num_tokens: int
    num_requests: int
    context: int
    seconds: float
    expected: float = 0.0
    accepted: float = 0.0
    catch_up_seconds: float = 0.0
    verifies: bool = False
    drafts: bool = False
    planned: bool = False


class Verdict(NamedTuple):
    """What drafting gains by measurement, in units of a step without drafts.

    Attributes:
        gain: accepted draft tokens per request less the time that they took longer; above 0 drafting pays.
        error: standard error of `gain`.
    """

    gain: float
    error: float


class Comparison:
    """Decides per class of batch size whether drafts are made at all, by steps of both kinds run within one another.

    A step with drafts gains accepted tokens and takes longer. Both count in steps without drafts: with n requests, s0
    seconds of a step without drafts and m accepted tokens, drafting a step gains

        m / n - (seconds - T) / s0,

    where T is what the cost model says of the same step without its drafts, so that prefills and the growth of texts
    cancel; the same term, measured in steps without drafts, corrects T. Everything is included: the plugin's own time,
    proposers, catching up, rollback. Means are winsorised, so a step of a hundred times the time counts as a late one.
    Expected tokens are used for accepted ones, corrected by the ratio of both over many drafts: a request's accepted
    tokens differ by chance far more than seconds do.

    A step that only verifies drafts is charged with the step that only made them, so that blocks have no ends.

    A class begins without drafts. Then blocks with and without drafts alternate: as long as it is not clear which is
    better a fifth of the steps is without, afterwards as many as `SHARE` of the time pays for. Where drafting loses
    significantly, or does not gain over a full window, a block without drafts follows; it is off if it loses against
    that block, too, so that a machine which is slow for a while does not look like a loss. It is tried again after 128
    steps, then twice as many, and so on, and not before `RETRY_SHARE` of the time has paid for the last trial's loss.

    Classes are powers of two of the number of requests.
    """

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}

    def is_off(self, num_requests: int) -> bool:
        """Whether the next step is to be without drafts."""
        return self._of(num_requests).is_off

    def is_sure(self, num_requests: int) -> bool:
        """Whether drafting is known to gain."""
        return self._of(num_requests).is_sure

    def verdict(self, num_requests: int) -> Verdict | None:
        """What the latest comparison says; None before the first."""
        return self._of(num_requests).verdict

    def skips(self, num_requests: int) -> bool:
        """Counts a step without drafts unmeasured, if drafting stays off for long; returns whether it did."""
        return self._of(num_requests).skips()

    def measured(self, step: ComparedStep, cost: StepCost, *, counts: bool) -> None:
        """Learns from a step.

        Args:
            step: what it took, and gave.
            cost: seconds of steps by the model.
            counts: whether it is to be compared; False for steps that are tried to learn from.
        """
        self._of(step.num_requests).measured(step, cost, counts=counts)

    def _of(self, num_requests: int) -> "_Class":
        size = num_requests.bit_length()
        if size not in self._classes:
            self._classes[size] = _Class()
        return self._classes[size]


class _Class:
    """A class of batch sizes.

    Attributes:
        is_off: whether the next step is without drafts.
        verdict: of the latest comparison.
    """

    def __init__(self) -> None:
        self._on, self._off = _Window(_ON_WINDOW), _Window(_OFF_WINDOW)
        # Steps without drafts since drafting seemed to lose; None if it does not.
        self._num_confirming: int | None = None
        self._retry = _FIRST_RETRY
        self.is_off, self._left = True, _FIRST_OFF
        self.verdict: Verdict | None = None
        self._since = 0
        # Expected and accepted draft tokens of late, and the variance of their difference.
        self._expected = self._accepted = self._chance = _TRUST
        # Seconds of catching up that are not charged yet, and that the latest step took longer for only making drafts.
        self._debt = self._making = 0.0
        # Steps with drafts since they were tried again, and what these lost, catching up in full, in steps without.
        self._num_tried, self._lost = 0, 0.0

    def skips(self) -> bool:
        """See `Comparison.skips`; one step in `_MEASURED_EACH` is measured all the same."""
        if not self.is_off or self._left <= _OFF_WINDOW or self._left % _MEASURED_EACH == 0:
            return False
        self._left -= 1
        return True

    def measured(self, step: ComparedStep, cost: StepCost, *, counts: bool) -> None:
        """Learns from a step, and says what comes next."""
        plain = cost.seconds((step.num_tokens, step.num_requests), step.num_requests, step.context)
        if step.verifies or step.drafts:
            self._num_tried += 1
            self._lost += (step.seconds - float(plain[0])) / float(plain[1]) - step.accepted / step.num_requests
            step = self._spread(step)
        if counts and plain[0] <= _MOST_PREFILL * plain[1]:
            self._note(step, step.seconds - float(plain[0]))
        if self.is_off or step.verifies or step.drafts:
            self._left -= 1
        if self._since >= _EVERY:
            self._since = 0
            self._judge(cost)
        if self._left <= 0:
            self._turn(cost)

    def _note(self, step: ComparedStep, excess: float) -> None:
        """Adds a step to those that are compared."""
        if step.verifies:
            if not step.drafts:
                step = step._replace(seconds=step.seconds + self._making)
                self._making = 0.0
            self._expected = _TRUST_FADE * self._expected + step.expected
            self._accepted = _TRUST_FADE * self._accepted + step.accepted
            self._chance = _TRUST_FADE**2 * self._chance + (step.accepted - step.expected) ** 2
            self._on.append(step)
            self._since += 1
        elif step.drafts:
            self._making = excess
        elif not step.planned:
            self._off.append(step)
            if self._num_confirming is not None:
                self._num_confirming += 1

    def _spread(self, step: ComparedStep) -> ComparedStep:
        """Charges catching up over the steps that profit from it."""
        self._debt += step.catch_up_seconds
        charge = self._debt / CATCH_UP_STEPS
        self._debt -= charge
        return step._replace(seconds=step.seconds - step.catch_up_seconds + charge)

    def _judge(self, cost: StepCost) -> None:
        """Compares; where drafting seems to lose, a block without drafts has to confirm it."""
        if min(len(self._on), len(self._off)) < _LEAST:
            return
        on, off = self._gains(self._on, cost), self._gains(self._off, cost)
        (gain, error), (without, error_without) = _mean(on), _mean(off)
        luck = math.sqrt(self._chance) / self._expected * self._on.expected_per_request()
        self.verdict = verdict = Verdict(gain - without, math.hypot(error, error_without, luck))
        is_full = len(on) == _ON_WINDOW
        if verdict.gain + _SIGMAS * verdict.error < 0 or (is_full and verdict.gain < _LEAST_GAIN):
            self._num_confirming = 0
            self.is_off, self._left = True, _OFF_BLOCK
        elif is_full and _mean(on[-_RECENT:])[0] < without:
            # What is known of steps without drafts may be old.
            self._restart(_RECENT)
        elif self.is_sure:
            self._retry = _FIRST_RETRY

    def _confirm(self, cost: StepCost) -> None:
        """Ends drafting if it loses against the steps without drafts that followed, too."""
        num_fresh, self._num_confirming, self.verdict = self._num_confirming or 0, None, None
        if num_fresh and len(self._on):
            gains, fresh = self._gains(self._on, cost), self._gains(self._off, cost)[-num_fresh:]
            loss = _mean(fresh)[0] - _mean(gains)[0]
            if loss > -_LEAST_GAIN:
                self._on.keep(0)
                # The price of trying again, unless drafting gained for a while and then did not.
                price = self._lost / RETRY_SHARE if self._num_tried <= _ON_WINDOW else 0
                self.is_off, self._left = True, max(self._retry, int(price))
                self._retry = min(2 * self._retry, _LAST_RETRY)
                self._num_tried, self._lost = 0, 0.0
                return
            self._off.keep(num_fresh)
        self._on.keep(0)
        self.is_off, self._left = False, _ON_BLOCK

    @property
    def is_sure(self) -> bool:
        """Whether drafting is known to gain."""
        return self.verdict is not None and self.verdict.gain > _SIGMAS * self.verdict.error

    def _gains(self, steps: "_Window", cost: StepCost) -> Floats:
        """[n]: what each step gained, in steps without drafts."""
        tokens, requests, context, seconds, expected = steps.rows.T
        plain = cost.seconds_of(tokens, requests, context)
        one = plain if (tokens == requests).all() else cost.seconds_of(requests, requests, context)
        gains: Floats = expected * (self._accepted / self._expected) / requests - (seconds - plain) / one
        return gains

    def _restart(self, num_kept: int) -> None:
        """Compares anew, with the latest steps with drafts and fresh ones without."""
        self._on.keep(num_kept)
        self._off.keep(0)
        self.verdict = None
        self.is_off, self._left = True, _OFF_BLOCK

    def _turn(self, cost: StepCost) -> None:
        """From a block of one kind to the next of the other."""
        if self._num_confirming is not None:
            self._confirm(cost)
        elif self.is_off:
            self.is_off, self._left = False, self._num_on()
        else:
            self.is_off, self._left = True, _OFF_BLOCK

    def _num_on(self) -> int:
        """Steps of the next block with drafts."""
        if self.verdict is None or not self.is_sure:
            return _ON_BLOCK
        price = (_OFF_BLOCK - 1) * max(self.verdict.gain, _LEAST_PRICE)
        return int(min(max(price / SHARE, _ON_BLOCK), _LONGEST_ON))


class _Window:
    """The latest steps of a kind, oldest first, as far as they are compared.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        # The latest is the last row: moving all by one is quicker than making an array of records.
        self._rows, self._count = np.zeros((most, 5)), 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Floats:
        """[n, 5]: the first five attributes of `ComparedStep`."""
        return self._rows[len(self._rows) - self._count :]

    def append(self, step: ComparedStep) -> None:
        """Adds a step; the oldest goes where there are too many."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = step[:5]
        self._count = min(self._count + 1, len(self._rows))

    def keep(self, count: int) -> None:
        """Forgets all but the latest steps."""
        self._count = min(self._count, count)

    def expected_per_request(self) -> float:
        """Draft tokens per request that were expected to be accepted in a step; the mean of the steps."""
        return float((self.rows[:, 4] / self.rows[:, 1]).mean())


def _mean(values: Floats) -> tuple[float, float]:
    """Mean and standard error; a tenth of the values at either end, rounded up, counts as the next ones."""
    # A few dozen numbers: Python's lists are quicker than arrays.
    ordered, count = sorted(values.tolist()), len(values)
    trimmed = -(-count // 10) if count > 2 else 0
    ordered[:trimmed] = ordered[trimmed : trimmed + 1] * trimmed
    ordered[count - trimmed :] = ordered[count - trimmed - 1 : count - trimmed] * trimmed
    mean = sum(ordered) / count
    return mean, max(math.sqrt(sum([(value - mean) ** 2 for value in ordered]) / count), _NOISE) / math.sqrt(count)
