"""The draft length that pays most, by measured acceptance and measured time."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.control import Batch, Forecast, Measured, Wish
from vllm_spec_plugin.scheduling.draft_length.draft_cost import DraftCost
from vllm_spec_plugin.scheduling.draft_length.expectation import Expectation
from vllm_spec_plugin.scheduling.draft_length.exploring import Purse, Sizes
from vllm_spec_plugin.scheduling.draft_length.optimal import Floats, Plans, Promises, plans
from vllm_spec_plugin.scheduling.draft_length.step_cost import StepCost

# How much better than no drafts a plan must be to begin drafting, and to go on with it.
BEGIN, GO_ON = 0.02, -0.01
# Steps that catching up with a request's text is spread over: once begun, a draft is likely to go on.
CATCH_UP_STEPS = 32


class OptimalControl:
    """Chooses the batch's draft lengths for the most expected tokens per second, 0 included.

    Now and then it does something else, for a share of the time: half of it goes to requests that are not drafted
    for, as their acceptance may have changed, half to steps of sizes that were not measured for long.

    Attributes:
        expectation: of the drafts' fate.
        step_cost: of the target's steps.
        draft_cost: of the proposer.
        forecast: of the latest plan.
    """

    def __init__(self, expectation: Expectation, max_step_tokens: int, explore: float = 0.01) -> None:
        """Knows nothing of what steps take yet.

        Args:
            expectation: of the drafts' fate.
            max_step_tokens: most tokens of a step.
            explore: share of the time that may be spent on what does not look best, from 0 to below 1.
        """
        self.expectation = expectation
        self.step_cost = StepCost(max_step_tokens)
        self.draft_cost = DraftCost()
        self._max_step_tokens = max_step_tokens
        self._for_requests = Purse(explore / 2)
        self._for_sizes = Purse(explore / 2)
        self._sizes = Sizes()
        # Output tokens since a request was last drafted for.
        self._idle: dict[str, int] = {}
        self._is_on = False
        self.forecast: Forecast | None = None

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[int]:
        """Draft lengths, one per wish, 0 to its limit."""
        self.forecast = None
        if not wishes:
            return []
        request_ids = [wish.request_id for wish in wishes]
        catch_up = self.draft_cost.catch_up_seconds * np.array([wish.gap for wish in wishes], np.float64)
        gains, delivered = self.expectation.promises(request_ids)
        promises = Promises(gains, delivered, catch_up / CATCH_UP_STEPS)
        limits = np.array([wish.limit for wish in wishes], np.int64)

        most_rows = int(np.ceil(delivered.sum()))
        num_tokens = batch.base_tokens + np.arange(most_rows + 2.0)
        step = self.step_cost.seconds(num_tokens, batch.num_requests, batch.context)
        choices = plans(promises, step, self.draft_cost.coefficients, limits, batch.most_tokens)
        best = choices.best(GO_ON if self._is_on else BEGIN)
        self._is_on = best > 0
        size, tried = best, ""
        other = self._other_size(choices, best, batch.base_tokens)
        if other is not None:
            size, tried = other, "size"
        lengths = choices.lengths(size)
        if not tried:
            one = self._other_request(choices, best, lengths, request_ids, catch_up)
            if one is not None:
                lengths[one], tried = 1, "request"
        for request_id, length in zip(request_ids, lengths, strict=True):
            if length:
                self._idle[request_id] = 0
        self.forecast = Forecast(
            float(choices.tokens[size]),
            float(choices.seconds[size]),
            float(choices.seconds[0]) / len(wishes),
            tuple(self.expectation.acceptance.tolist()),
            tried,
        )
        return lengths

    def _other_size(self, choices: Plans, best: int, base_tokens: int) -> int | None:
        """A plan whose size was not measured for long, if it can be paid for."""
        losses = choices.losses(best)
        size = self._sizes.choose(base_tokens + choices.rows, losses, self._for_sizes.seconds)
        if size is None or size == best:
            return None
        self._for_sizes.pay(max(float(losses[size]), 0.0))
        return size

    def _other_request(
        self, choices: Plans, best: int, lengths: list[int], request_ids: list[str], catch_up: Floats
    ) -> int | None:
        """Of the requests that are not drafted for and can be paid for, the one that was not for longest."""
        if best == len(choices.order):
            return None
        # One token more, whoever's it is.
        price = max(float(choices.seconds[best + 1] - choices.seconds[best]), 0.0)
        off = [i for i, length in enumerate(lengths) if not length]
        payable = [i for i in off if price + catch_up[i] <= self._for_requests.seconds]
        if not payable:
            return None
        chosen = max(payable, key=lambda i: self._idle.get(request_ids[i], 0))
        self._for_requests.pay(price + float(catch_up[chosen]))
        return chosen

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Learns how a request's drafts fared."""
        self.expectation.verified(request_id, asked, drafted, accepted)

    def advance(self, request_id: str, num_tokens: int) -> None:
        """A request's text grew."""
        self.expectation.advance(request_id, num_tokens)
        self._idle[request_id] = self._idle.get(request_id, 0) + num_tokens

    def measured(self, step: Measured) -> None:
        """Learns what a step took."""
        target_seconds = step.seconds - step.draft_seconds
        self.step_cost.observe(step.num_tokens, step.num_requests, step.context, target_seconds)
        if step.num_drafted:
            self.draft_cost.observe(step.longest, step.num_drafted, step.caught_up, step.draft_seconds)
        self._sizes.measured(step.num_tokens)
        self._for_requests.served(step.seconds)
        self._for_sizes.served(step.seconds)

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Begins again with what steps took at start-up."""
        self.step_cost = StepCost(self._max_step_tokens, steps)

    def forget(self, request_id: str) -> None:
        """A request is gone."""
        self.expectation.forget(request_id)
        self._idle.pop(request_id, None)
