"""Now and then doing what does not look best, to know whether it is, for a bounded share of the time."""

import math

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints

# Time served beyond this earns nothing more: a long phase in which all went well is no licence for a burst.
_MOST_SECONDS = 60.0
# Sizes of steps are told apart by this factor, up to more tokens than any step has.
_SIZE = 1.3
_NUM_BINS = 64
# Steps after which it is worth to measure a size again.
_STALE = 2
# Of a step's time, what a trial costs at least: no forecast is better than that, and a first step of some size takes
# longer than others where kernels are made for it.
_LEAST_SHARE = 0.03


class Purse:
    """Fills with a share of all time served, and pays for what is expected to cost more than it is worth.

    Args:
        share: of the time, from 0 (nothing is ever paid) to below 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.seconds = 0.0

    @property
    def capacity(self) -> float:
        """Most seconds that it holds."""
        return _MOST_SECONDS * self._share

    def served(self, seconds: float) -> None:
        """Adds a step's time."""
        self.seconds = min(self.seconds + self._share * seconds, self.capacity)

    def can_pay(self, seconds: float) -> bool:
        """Whether it holds so much; a full one pays any price, and is in debt then."""
        return self.seconds > 0 and (seconds <= self.seconds or self.seconds >= self.capacity)

    def pay(self, seconds: float) -> None:
        """Takes that out."""
        self.seconds -= seconds


class Sizes:
    """Which sizes of steps were measured lately.

    What a step takes is learned from those that are run. Where all are of one size, nothing tells whether
    another one would be better, and a wrong idea of it stays.
    """

    def __init__(self) -> None:
        """None was measured yet."""
        self._last = np.zeros(_NUM_BINS, np.int64)
        self._steps = 0

    def measured(self, num_tokens: float) -> None:
        """A step of that size was run."""
        self._steps += 1
        self._last[_bin(num_tokens)] = self._steps

    def choose(self, base_tokens: int, plans: Floats, best: int, budget: float) -> tuple[int, float] | None:
        """Of the plans that cost at most `budget`, the one whose size was not measured for longest.

        Args:
            base_tokens: tokens of the step beside those of the plans.
            plans: [3, m], of each plan the output tokens, tokens that are verified, and seconds.
            best: the plan that looks best: at its rate others cost seconds more than they are worth, or fewer.
            budget: seconds.

        Returns:
            Its place and what it costs; None if all of them were measured, or chosen, within the last `_STALE` steps.
        """
        chosen, loss = _stalest(base_tokens, plans, best, budget, self._last, self._steps)
        return None if chosen < 0 else (chosen, loss)


@compiled
def _bin(num_tokens: float) -> int:
    return min(int(math.log(max(num_tokens, 1.0)) / math.log(_SIZE) + 0.5), _NUM_BINS - 1)


@compiled
def _stalest(base_tokens: int, plans: Floats, best: int, budget: float, last: Ints, now: int) -> tuple[int, float]:
    """The first plan within budget of the size measured longest ago, -1 if all were of late, and its cost.

    Its size is noted as measured: the step may turn out to be of another one, as proposers do not always have a guess.
    """
    tokens, rows, seconds = plans
    worth = seconds[best] / tokens[best]
    chosen, at, price = -1, now - _STALE + 1, 0.0
    for plan in range(len(rows)):
        loss = max(seconds[plan] - tokens[plan] * worth, _LEAST_SHARE * seconds[best])
        if loss <= budget:
            measured = last[_bin(base_tokens + rows[plan])]
            if measured < at:
                chosen, at, price = plan, measured, loss
    if chosen >= 0:
        last[_bin(base_tokens + rows[chosen])] = now
    return chosen, price
