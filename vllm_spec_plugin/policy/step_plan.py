"""Learns from outcomes, estimates and plans a step, in one compiled call; and the forms of what goes in and out."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.jit import Bools, Floats, Ints, compiled
from vllm_spec_plugin.policy.acceptance import Acceptance, expect, fade, learn
from vllm_spec_plugin.policy.allocation import CandidateDrafts, Value, allocate
from vllm_spec_plugin.policy.control import StepBatch
from vllm_spec_plugin.policy.on_off import CATCH_UP_STEPS
from vllm_spec_plugin.policy.step_cost import UNEVEN, StepTimes, plain_seconds, write_seconds


class Plans(dict[int, DraftPlan]):
    """Draft plans by the code that `plan_step` gives them."""

    def __init__(self, num_proposers: int, num_positions: int) -> None:
        super().__init__()
        self._base, self._num_lengths = num_proposers * (num_positions + 1), num_positions + 1

    def __missing__(self, code: int) -> DraftPlan:
        """Decodes a plan."""
        places, left = [], code
        while left:
            left, place = divmod(left, self._base)
            places.append(divmod(place, self._num_lengths))
        plan = self[code] = tuple(places)
        return plan


def table_of(of_requests: Sequence[tuple[int, ...]], num_proposers: int) -> Ints:
    """Returns [n, L], a number per request and proposer."""
    # Faster for equal rows, which are usual.
    if of_requests.count(of_requests[0]) == len(of_requests):
        table = np.empty((len(of_requests), num_proposers), np.int64)
        table[:] = of_requests[0]
        return table
    count = len(of_requests) * num_proposers
    return np.fromiter(chain.from_iterable(of_requests), np.int64, count).reshape(-1, num_proposers)


@compiled
def plan_step(
    acceptance: Acceptance,
    effects: Floats,
    faded_until: Ints,
    outcomes: Ints,
    rows: Ints,
    num_output: Ints,
    limits: Ints,
    uncomputed: Ints,
    costs: Floats,
    in_step: Bools,
    times: StepTimes,
    batch: StepBatch,
    num_steps: int,
    speedup: float,
    rows_per_request: float,
    is_longer: bool,
) -> tuple[Ints, Value, tuple[float, float, float]]:
    """Learns from outcomes, estimates and plans a step for n requests of L proposers.

    Args:
        acceptance: estimates, changed in place.
        effects: see `acceptance.learn`.
        faded_until: see `RequestRows.num_output`, changed in place.
        outcomes: see `acceptance.learn`.
        rows: [n], rows of the requests.
        num_output: [n], output tokens of the requests.
        limits: [n, L], maximum draft tokens.
        uncomputed: [n, L], text tokens that a proposer must compute before it drafts.
        costs: [L, 4], seconds of each proposer per step, position, draft token and token of catch-up.
        in_step: [L], whether drafting is part of the target's step.
        times: seconds of the target's steps.
        batch: the step that verifies the drafts.
        num_steps: steps since the latest plan.
        speedup: of the latest plan, tokens per second over those of no drafts.
        rows_per_request: of the latest plan, draft tokens per request.
        is_longer: whether drafts of `in_step` proposers are a token longer than planned.

    Returns:
        [n], plans as numbers whose digits, to the base L (K + 1), are proposer (K + 1) + length, the first place
        last; the plan's value; and in seconds a step without drafts, its part per output token in a step without
        prompts, and as a share of that of an output token the price of a draft token.
    """
    learn(acceptance, effects, outcomes, num_steps)
    for i in range(len(rows)):
        num_new = num_output[i] - faded_until[rows[i]]
        if num_new > 0:
            fade(acceptance, effects[rows[i]], num_new)
            faded_until[rows[i]] = num_output[i]
    num_requests, num_proposers = limits.shape
    num_positions = acceptance.log_odds.shape[1]
    gains = np.empty((num_proposers, num_requests, num_positions))
    draft_tokens = np.empty_like(gains)
    expect(acceptance, effects, rows, gains, draft_tokens)
    most = min(max(batch.max_draft_tokens, 0), num_requests * num_positions)
    step = np.empty(most + 2)
    write_seconds(times, batch.base_tokens, batch.num_requests, batch.context, step)
    candidates = CandidateDrafts(
        gains,
        draft_tokens,
        uncomputed * (costs[:, 3] / CATCH_UP_STEPS),
        np.minimum(limits, acceptance.num_positions),
        costs,
        step,
        most,
        batch.others,
        in_step,
    )
    num_outputs = num_requests + batch.others
    rate = speedup * num_outputs / step[0]
    # What a draft token adds to the target's step, near the latest plan's size.
    last = min(int((rows_per_request + 1) * num_requests), len(step) - 1)
    first = max(min(int((rows_per_request - 1) * num_requests), last - 1), 0)
    row_seconds = (step[last] - step[first]) / (last - first)
    uneven = times.others[UNEVEN] if len(times.others) > UNEVEN and batch.base_tokens == num_requests else 0.0
    lengths, proposers, value = allocate(candidates, rate, row_seconds, uneven)
    if is_longer and value.positions + num_requests <= most:
        for i in range(num_requests):
            for place in range(num_proposers):
                proposer = proposers[i, place]
                if 0 < lengths[i, place] < candidates.limits[i, proposer] and in_step[proposer]:
                    lengths[i, place] += 1
    codes, base = np.zeros(num_requests, np.int64), num_proposers * (num_positions + 1)
    for i in range(num_requests):
        for place in range(num_proposers - 1, -1, -1):
            if lengths[i, place]:
                codes[i] = codes[i] * base + proposers[i, place] * (num_positions + 1) + lengths[i, place]
    decode_seconds = step[0]
    if batch.base_tokens != num_outputs:
        decode_seconds = plain_seconds(times, num_outputs, num_outputs, batch.context)
    return codes, value, (step[0], decode_seconds / num_outputs, rate * row_seconds)
