"""Chooses draft lengths for the most expected tokens per second of the batch, K = 0 included."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.jit import Bools, Floats, Ints, compiled
from vllm_spec_plugin.policy.acceptance import Acceptance, expect, fade, learn
from vllm_spec_plugin.policy.allocation import CandidateDrafts, Value, allocate
from vllm_spec_plugin.policy.control import DraftRequest, MeasuredStep, Off, StepBatch, StepForecast
from vllm_spec_plugin.policy.draft_cost import DraftCost
from vllm_spec_plugin.policy.on_off import CATCH_UP_STEPS, ComparedStep, OnOffComparison
from vllm_spec_plugin.policy.request_rows import RequestRows
from vllm_spec_plugin.policy.step_cost import PASS, ROW, UNEVEN, StepCost, StepTimes, plain_seconds, write_seconds

# Maximum share of a step's time that verification may add in a step with prompts.
_MAX_DELAY = 0.15
# Prior time of a proposer's pass, as a share of a target's step of one token.
_PASS_SHARE = 0.1
# Plans without drafts in a row after which drafting counts as off for a short time, and for long.
_SHORT, _LONG = 7, 31


class ProposerTraits(NamedTuple):
    """Traits of a proposer that planning needs.

    Attributes:
        num_positions: maximum draft tokens; of trees, maximum nodes.
        is_tree: whether its drafts are trees, with nodes by path probability.
        is_in_step: whether the time of a target's step includes its drafting, for whatever is planned.
        in_one_pass: whether a draft of any length takes one pass, so that further tokens cost little.
    """

    num_positions: int
    is_tree: bool = False
    is_in_step: bool = False
    in_one_pass: bool = False


class OptimalControl:
    """Plans by measured acceptance and measured time; also measures whether drafting gains at all.

    - `Acceptance`: of each proposer, by request and position.
    - `StepCost`, `DraftCost`: seconds of the target's steps, and of drafting that is measured by itself.
    - `allocate`: the plan with the most expected output tokens per second.
    - `OnOffComparison`, by powers of two of the number of requests: compares measured steps with drafts and without,
      and switches off drafting that loses.

    Attributes:
        step_cost: cost model of the target's steps.
        draft_costs: per proposer; None where drafting is part of the step.
        forecast: see `DraftLengthControl`.
        off: see `DraftLengthControl`; after many plans without drafts they count as off, too.
        least_acceptance: see `DraftLengthControl`.
    """

    is_constant = False

    def __init__(self, proposers: Sequence[ProposerTraits], half_life: float, max_step_tokens: int) -> None:
        """Starts without observations.

        Args:
            proposers: traits of each proposer, in the order of the configuration.
            half_life: output tokens of a request in which what is known of it halves.
            max_step_tokens: maximum tokens of a step.
        """
        self._proposers, self._max_step_tokens = tuple(proposers), max_step_tokens
        self._acceptance = Acceptance.of(
            [each.num_positions for each in proposers], [each.is_tree for each in proposers], half_life
        )
        self._in_step = np.array([each.is_in_step for each in proposers], np.bool_)
        self.step_cost = StepCost(max_step_tokens, has_drafter=bool(self._in_step.any()))
        self.draft_costs = [None if each.is_in_step else DraftCost() for each in proposers]
        # The first drafting of a proposer may include its set-up.
        self._is_cold = [True] * len(proposers)
        # [L, 4], seconds of each proposer per step, position, draft token and token of catch-up.
        self._costs = np.empty((len(proposers), 4))
        for i in range(len(proposers)):
            self._note_costs(i)
        self._rows = RequestRows(len(proposers))
        # Bound directly: it is called for each request in each step.
        self.verified = self._rows.verified
        self._comparisons: dict[int, OnOffComparison] = defaultdict(OnOffComparison)
        self._plans = _Plans(len(proposers), self._acceptance.log_odds.shape[1])
        self.forecast: StepForecast | None = None
        self.off, self.least_acceptance = Off.NOT, 0.0
        # Steps since the latest plan, and plans without drafts in a row.
        self._num_unlearned = self._num_empty = 0
        # Of the latest plan: tokens per second over those of no drafts, and draft tokens per request.
        self._speedup, self._rows_per_request = 1.0, 0.0

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """Per proposer and position, see `Acceptance.average`."""
        return tuple([self._acceptance.average(i) for i in range(len(self._proposers))])

    def begin_step(self, num_requests: int) -> bool:
        """Drafts, unless drafts lose by measurement, or steps without are being measured."""
        comparison = self._comparisons[num_requests.bit_length()]
        if comparison.is_off:
            self.off, self.forecast, self._num_empty = comparison.off, None, 0
        elif not self._num_empty:
            self.off = Off.NOT
        return not comparison.is_off

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """See `DraftLengthControl`."""
        steps = self.step_cost.seconds(np.arange(num_tokens, num_tokens + limit + 1), num_requests, context)
        return int(np.searchsorted(steps, (1 + _MAX_DELAY) * steps[0], side="right")) - 1

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Learns from the outcomes since the last plan, and returns each request's draft plan, within its limits."""
        self.forecast = None
        if not requests:
            return []
        request_ids, limits, uncomputed, num_output = zip(*requests, strict=True)
        rows, num_proposers = self._rows.add(request_ids), len(self._proposers)
        codes, value, (plain, per_token, self.least_acceptance) = _plan(
            self._acceptance,
            self._rows.effects,
            self._rows.num_output,
            self._rows.take(),
            rows,
            np.array(num_output, np.int64),
            _table(limits, num_proposers),
            _table(uncomputed, num_proposers),
            self._costs,
            self._in_step,
            self.step_cost.times,
            batch,
            self._num_unlearned,
            self._speedup,
            self._rows_per_request,
        )
        self._num_unlearned = 0
        self._rows.free()
        num_outputs = len(requests) + batch.others
        self._speedup = value.tokens / value.seconds * plain / num_outputs
        self._rows_per_request = value.rows / len(requests)
        self._num_empty = 0 if value.positions else self._num_empty + 1
        self.off = Off.NOT if self._num_empty < _SHORT else Off.SHORT if self._num_empty < _LONG else Off.LONG
        self.forecast = StepForecast(value.tokens, value.seconds, num_outputs, plain, per_token)
        plans = self._plans
        return [plans[code] for code in codes.tolist()]

    def _note_costs(self, proposer: int) -> None:
        """Notes a proposer's present costs for planning."""
        cost, others = self.draft_costs[proposer], self.step_cost.times.others
        if cost is not None:
            self._costs[proposer] = cost.coefficients
        elif self._proposers[proposer].in_one_pass:
            self._costs[proposer] = others[PASS], 0.0, others[ROW], others[ROW]
        else:
            self._costs[proposer] = 0.0, others[PASS], others[ROW], others[ROW]

    def measured(self, step: MeasuredStep) -> None:
        """Updates cost models and the comparison by a finished step."""
        self._num_unlearned += 1
        drafts, timed, catch_up = False, 0.0, 0.0
        for i, drafting in enumerate(step.drafting):
            drafts |= drafting.longest > 0
            timed += drafting.seconds
            cost = self.draft_costs[i]
            if cost is not None and drafting.longest:
                if not self._is_cold[i]:
                    passes = min(drafting.longest, self._proposers[i].num_positions)
                    cost.observe(passes, drafting.num_drafted, drafting.caught_up, drafting.seconds)
                    self._note_costs(i)
                self._is_cold[i] = False
        passes, rows, _ = drafter = self._work_of_drafter(step)
        has_drafts, seconds = step.has_drafts or drafts, step.seconds
        self.step_cost.observe(
            step.num_tokens, step.num_requests, step.context, seconds - timed, has_drafts=has_drafts, drafter=drafter
        )
        if self._in_step[-1]:
            self._note_costs(-1)
            if passes and not drafts:
                # Compared is a step without speculation: its drafter rests.
                others = self.step_cost.times.others
                seconds -= float(others[PASS] * passes + others[ROW] * rows)
        for costs, drafting in zip(self._costs, step.drafting, strict=True):
            if drafting.caught_up:
                most = drafting.seconds if drafting.is_timed else seconds
                catch_up += min(drafting.caught_up * float(costs[3]), most)
        expected = float(step.num_accepted)
        if step.forecast is not None:
            expected = step.forecast.tokens - step.forecast.plain_tokens
        compared = ComparedStep(
            step.num_tokens - step.num_drafts,
            step.num_requests,
            step.context,
            seconds,
            expected if step.has_drafts else 0.0,
            step.num_accepted,
            catch_up,
            has_drafts,
            self.forecast is not None,
        )
        self._comparisons[step.num_requests.bit_length()].measured(compared, self.step_cost.times)

    def _work_of_drafter(self, step: MeasuredStep) -> tuple[int, int, bool]:
        """Returns passes, rows and unevenness of a drafter whose time is part of a step, as `StepCost.observe`."""
        if not self._in_step[-1]:
            return 0, 0, False
        native = step.drafting[-1]
        # The first pass has a row per request, also where nothing is drafted.
        rows = native.num_drafted or step.num_requests * min(step.drafter_passes, 1)
        return step.drafter_passes, rows + native.caught_up, step.is_uneven

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Restarts the cost models from steps timed at start-up, as (tokens, seconds)."""
        self.step_cost = StepCost(self._max_step_tokens, steps, has_drafter=bool(self._in_step.any()))
        pass_seconds = _PASS_SHARE * float(self.step_cost.seconds([1.0], 1, 0)[0])
        for i, cost in enumerate(self.draft_costs):
            if cost is not None and not cost.num_observations:
                self.draft_costs[i] = DraftCost(pass_seconds)
            self._note_costs(i)

    def forget(self, request_id: str) -> None:
        """Drops the state of a request that ended."""
        self._rows.forget(request_id)


class _Plans(dict[int, DraftPlan]):
    """Draft plans by the code that `_plan` gives them."""

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


def _table(of_requests: Sequence[tuple[int, ...]], num_proposers: int) -> Ints:
    """Returns [n, L], a number per request and proposer."""
    # Faster for equal rows, which are usual.
    if of_requests.count(of_requests[0]) == len(of_requests):
        table = np.empty((len(of_requests), num_proposers), np.int64)
        table[:] = of_requests[0]
        return table
    count = len(of_requests) * num_proposers
    return np.fromiter(chain.from_iterable(of_requests), np.int64, count).reshape(-1, num_proposers)


@compiled
def _plan(
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
    codes, base = np.zeros(num_requests, np.int64), num_proposers * (num_positions + 1)
    for i in range(num_requests):
        for place in range(num_proposers - 1, -1, -1):
            if lengths[i, place]:
                codes[i] = codes[i] * base + proposers[i, place] * (num_positions + 1) + lengths[i, place]
    decode_seconds = step[0]
    if batch.base_tokens != num_outputs:
        decode_seconds = plain_seconds(times, num_outputs, num_outputs, batch.context)
    return codes, value, (step[0], decode_seconds / num_outputs, rate * row_seconds)
