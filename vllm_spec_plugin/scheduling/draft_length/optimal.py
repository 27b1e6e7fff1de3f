"""How many tokens to draft for each request of a batch: the plans worth looking at, and the best of them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.scheduling.draft_length.plan_sizes import best_by_size

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Promises:
    """What a proposer is expected to do for n requests, for up to K draft tokens each.

    Attributes:
        gains: [n, K], accepted tokens that asking for the k-th one adds; falling along k.
        delivered: [n, K], the probability that there is a k-th draft token if it is asked for.
        entry: [n], seconds that a request's first draft token takes besides: catching up with its text.
    """

    gains: Floats
    delivered: Floats
    entry: Floats


@dataclass(frozen=True)
class Plans:
    """A plan for each number of draft tokens in the batch, from none to m.

    Attributes:
        order: [m], all draft tokens in the order of their worth: k * n + r is the (k+1)-th one of request r.
        bounds: [m + 1], the longest draft that is allowed in each plan.
        num_requests: n.
        tokens: [m + 1], expected output tokens of the step.
        rows: [m + 1], draft tokens that are expected to be there and verified.
        seconds: [m + 1], what the step is expected to take.
    """

    order: Ints
    bounds: Ints
    num_requests: int
    tokens: Floats
    rows: Floats
    seconds: Floats

    def best(self, bias: float = 0.0) -> int:
        """The number of draft tokens that gives the most expected tokens per second; 0 where none pays.

        Args:
            bias: how much better than no drafts it must be, as a share; below 0 it may be worse.
        """
        rates = self.tokens / self.seconds
        rates[0] *= 1 + bias
        return int(np.argmax(rates))

    def gain(self, size: int) -> float:
        """Expected tokens per second of a plan over those without drafts."""
        return float(self.tokens[size] * self.seconds[0] / (self.seconds[size] * self.tokens[0]))

    def losses(self, best: int) -> Floats:
        """[m + 1]: seconds that each plan is expected to cost more than it is worth at the best one's rate."""
        loss: Floats = self.seconds - self.tokens * (self.seconds[best] / self.tokens[best])
        return loss

    def lengths(self, size: int) -> list[int]:
        """[n]: the draft lengths of a plan."""
        taken = self.order[self.order < self.bounds[size] * self.num_requests][:size]
        lengths: list[int] = np.bincount(taken % self.num_requests, minlength=self.num_requests).tolist()
        return lengths


def plans(promises: Promises, step: Floats, draft: Floats, limits: Ints, most_tokens: int) -> Plans:
    """The best distribution of each number of draft tokens over the requests, and what it is worth.

    Wanted are the most expected output tokens per second, (n + sum of gains) / (step + draft): with one request, a
    verification that costs nothing and the same acceptance everywhere, theorem 3.8 of Leviathan et al. (2023).
    Gains fall along each request's draft, so the most gain for a number of tokens is the beginning of one list,
    all requests' tokens by falling gain, whatever shape the step's time has. Passes of a draft model cost by
    the longest draft, so this is done for each bound on it. Only entries make it a greedy choice.

    Args:
        promises: of the n requests that may be drafted for, at least one.
        step: [>= draft tokens of the batch + 2], seconds of the target by the number of draft tokens it verifies.
        draft: [3], seconds that drafting takes in a step at all, per place of the longest draft, and per token.
        limits: [n], most draft tokens of each.
        most_tokens: most draft tokens of the batch: what token budget and KV blocks allow.
    """
    num_requests, most = promises.gains.shape
    # Position by position, so that a stable sort keeps the order within a request where gains are equal.
    candidates = np.flatnonzero((np.arange(most)[:, None] < limits).ravel())
    gains = promises.gains.T
    # Whose first token is dear comes later, with the whole draft.
    worth = np.minimum(gains, gains[0] - promises.entry * (num_requests / step[0]))
    order = candidates[np.argsort(-worth.ravel()[candidates], kind="stable")[: max(most_tokens, 0)]]
    tokens, rows, seconds, bounds = best_by_size(order, promises.gains, promises.delivered, promises.entry, step, draft)
    return Plans(order, bounds, num_requests, tokens, rows, seconds)
