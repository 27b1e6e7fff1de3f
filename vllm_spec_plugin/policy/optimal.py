"""Chooses draft lengths for the most expected tokens per second of the batch, K = 0 included."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.jit import Ints
from vllm_spec_plugin.policy.allocation import CandidateDrafts, allocate
from vllm_spec_plugin.policy.control import (
    DraftRequest,
    MeasuredStep,
    Off,
    StepBatch,
    StepForecast,
    StepMode,
)
from vllm_spec_plugin.policy.draft_cost import DraftCostInStep
from vllm_spec_plugin.policy.equal_lengths import best_with_even
from vllm_spec_plugin.policy.on_off import CATCH_UP_STEPS, OnOffComparison
from vllm_spec_plugin.policy.on_off_window import ComparedStep
from vllm_spec_plugin.policy.outcome_log import OutcomeNotes, plans_of
from vllm_spec_plugin.policy.proposer_estimates import ProposerEstimates
from vllm_spec_plugin.policy.request_index import RequestRows
from vllm_spec_plugin.policy.step_cost import StepCost

# Steps for which a plan without drafts is reused in a batch of the same size: maximum, and that from which on drafting
# counts as off.
_MAX_BACKOFF, _SHORT_BACKOFF = 16, 4
# While a plan without drafts is reused, one of this many steps is measured.
_MEASURED_EACH = 4
# Maximum share of a step's time that verification may add in a step with prompts.
_MAX_DELAY = 0.15
# Seconds of a plan and of learning from a step, also per request (`python -m benchmarks.native_host`); their share of
# the time while drafts gain; maximum steps for which a plan is reused to keep that.
_PLANNING, _PLANNING_PER_REQUEST, _PLANNING_SHARE, _MAX_REUSED = 5e-4, 1.5e-5, 0.01, 7
# A reused plan ends if this many standard deviations fewer tokens are accepted than this share of the expected ones.
_MIN_AS_EXPECTED, _TOLERANCE = 0.7, 2.0


@dataclass
class _Kept:
    """A plan with drafts that is reused in the next steps of the same batch.

    Attributes:
        made_for: request ids, limits and batch sizes that it was made for.
        draft_plans: draft plan of each request.
        num_tokens: draft tokens of all plans.
        steps_left: number of further steps for which it may be used.
        lacking: accepted draft tokens that are missing so far.
    """

    made_for: tuple[object, ...]
    draft_plans: list[DraftPlan]
    num_tokens: int
    steps_left: int
    lacking: float = 0.0


class OptimalControl:
    """Plans by measured acceptance and measured time; also measures whether drafting gains at all.

    - `ProposerEstimates`, one per proposer: acceptance by request and position, and the cost of drafting.
    - `StepCost`: seconds of the target's steps.
    - `allocate`: the plan with the most expected output tokens per second.
    - `OnOffComparison`: compares measured steps with and without drafts, and switches off drafting that loses.

    Attributes:
        proposers: model of each proposer, in the order of the configuration.
        step_cost: cost model of the target's steps.
        forecast: expected tokens and seconds of the latest plan; None if there is none.
        off: see `DraftLengthControl`; also while plans without drafts are reused.
        least_acceptance: see `DraftLengthControl`.
    """

    is_constant = False

    def __init__(
        self,
        proposers: Sequence[ProposerEstimates],
        requests: RequestRows,
        max_step_tokens: int,
        step_cost: StepCost | None = None,
    ) -> None:
        """Starts without observations.

        Args:
            proposers: model of each proposer, in the order of the configuration.
            requests: rows of the requests, shared with the proposers' models.
            max_step_tokens: maximum tokens of a step.
            step_cost: cost model of the target's steps, if a proposer's model has it; else a new one.
        """
        self.proposers = tuple(proposers)
        self.step_cost = step_cost or StepCost(max_step_tokens)
        self.forecast: StepForecast | None = None
        self._max_step_tokens = max_step_tokens
        self._requests = requests
        self._notes = OutcomeNotes(len(proposers))
        # Bound directly: it is called for each request in each step.
        self.verified = self._notes.verified
        self._comparison = OnOffComparison()
        # Number of steps since the latest update by outcomes.
        self._num_unlearned = 0
        # Steps for which the latest plan without drafts is reused, how many are left, and its number of requests.
        self._backoff, self._backoff_left, self._num_backing_off = 0, 0, 0
        self._kept: _Kept | None = None
        self.off = Off.NOT
        self._num_positions = np.array([proposer.num_positions for proposer in proposers])
        self._max_positions = int(self._num_positions.max(initial=0))
        self._unconditional = np.array([isinstance(each.draft_cost, DraftCostInStep) for each in proposers], np.bool_)
        # Of the latest plan: tokens per second over those of no drafts, and draft tokens per request.
        self._speedup, self._rows_per_request, self.least_acceptance = 1.0, 0.0, 0.0

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """Per proposer and position, as `AcceptanceModel.average`."""
        return tuple([proposer.acceptance for proposer in self.proposers])

    def begin_step(self, num_requests: int, *, may_skip: bool) -> StepMode:
        """Drafts, unless drafts lose by measurement, steps without are being measured, or the latest plan had none.

        A plan without drafts is reused for 1 step, then for 2, 4 and so on: planning takes time, and little is learned
        meanwhile. Most steps are skipped while drafting stays off for long.
        """
        comparison = self._comparison
        is_resting = self._backoff_left > 0 and num_requests == self._num_backing_off
        if loses := comparison.is_off(num_requests):
            is_resting = False
        elif not is_resting:
            self.off = Off.NOT
            return StepMode.DRAFTS
        self.off = comparison.off(num_requests) if loses else self._off_by_plan()
        self._backoff_left -= is_resting
        self.forecast = self._kept = None
        self._learn()
        if not may_skip:
            return StepMode.OFF
        skips = comparison.skips(num_requests) if loses else self._backoff_left % _MEASURED_EACH > 0
        self._num_unlearned += skips
        return StepMode.SKIPPED if skips else StepMode.OFF

    def _off_by_plan(self) -> Off:
        if self._backoff < _SHORT_BACKOFF:
            return Off.NOT
        return Off.LONG if self._backoff == _MAX_BACKOFF else Off.SHORT

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """See `DraftLengthControl`."""
        steps = self.step_cost.seconds(np.arange(num_tokens, num_tokens + limit + 1), num_requests, context)
        return int(np.searchsorted(steps, (1 + _MAX_DELAY) * steps[0], side="right")) - 1

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Returns each request's draft plan, within its limits.

        Where steps are fast and drafting is known to gain, a plan is reused in further steps of the same batch.
        """
        if not requests:
            self.forecast = None
            self._learn()
            return []
        request_ids, limits, uncomputed, _ = zip(*requests, strict=True)
        made_for = request_ids, limits, batch.base_tokens, batch.num_requests, batch.others
        kept = self._kept
        if kept and kept.steps_left > 0 and made_for == kept.made_for and kept.num_tokens <= batch.max_draft_tokens:
            kept.steps_left -= 1
            return kept.draft_plans
        self.forecast = self._kept = None
        self._learn()
        rows = self._requests.add(request_ids)
        candidates = self._candidates(rows, limits, uncomputed, batch)
        num_outputs, plain_seconds = len(requests) + batch.others, float(candidates.step[0])
        rate = self._speedup * num_outputs / plain_seconds
        row_seconds = self._row_seconds(candidates)
        self.least_acceptance = rate * row_seconds
        lengths, ranked, value = allocate(candidates, rate, row_seconds)
        uneven = self.step_cost.drafter_seconds
        if len(uneven) and len(self.proposers) == 1 and batch.base_tokens == len(requests):
            lengths, value = best_with_even(candidates, lengths, value, float(uneven[2]))
        speedup = value.tokens / value.seconds * plain_seconds / num_outputs
        self._speedup, self._rows_per_request = speedup, value.rows / len(requests)
        draft_plans = plans_of(lengths, ranked)
        self._backoff = 0 if value.positions else min(max(2 * self._backoff, 1), _MAX_BACKOFF)
        self._backoff_left, self._num_backing_off = self._backoff, batch.num_requests
        self.off = self._off_by_plan()
        if value.positions and self._comparison.is_sure(batch.num_requests):
            planning = _PLANNING + _PLANNING_PER_REQUEST * len(requests)
            num_steps = min(int(planning / (_PLANNING_SHARE * plain_seconds)), _MAX_REUSED)
            self._kept = _Kept(made_for, draft_plans, int(lengths.sum()), num_steps)
        decode_seconds = plain_seconds
        if batch.base_tokens != num_outputs:
            decode_seconds = float(self.step_cost.seconds([num_outputs], num_outputs, batch.context)[0])
        per_token = decode_seconds / num_outputs
        self.forecast = StepForecast(value.tokens, value.seconds, num_outputs, plain_seconds, per_token)
        return draft_plans

    def _candidates(
        self, rows: Ints, limits: Sequence[tuple[int, ...]], uncomputed: Sequence[tuple[int, ...]], batch: StepBatch
    ) -> CandidateDrafts:
        """Returns the proposers' expected drafts and costs."""
        shape = len(self.proposers), len(rows)
        draft_prob = np.empty(shape)
        gains, draft_tokens = np.empty((2, *shape, self._max_positions))
        for i, proposer in enumerate(self.proposers):
            proposer.expect(rows, draft_prob[i], gains[i], draft_tokens[i])
        costs = [proposer.draft_cost for proposer in self.proposers]
        entry = _table(uncomputed, len(costs)) * [cost.catch_up_seconds / CATCH_UP_STEPS for cost in costs]
        bounds = np.minimum(_table(limits, len(costs)), self._num_positions)
        max_draft_tokens = min(max(batch.max_draft_tokens, 0), len(rows) * self._max_positions)
        step = self.step_cost.seconds_from(batch.base_tokens, max_draft_tokens + 2, batch.num_requests, batch.context)
        drafting = np.array([cost.coefficients for cost in costs])
        return CandidateDrafts(
            draft_prob,
            gains,
            draft_tokens,
            entry,
            bounds,
            drafting,
            step,
            max_draft_tokens,
            batch.others,
            self._unconditional,
        )

    def _row_seconds(self, candidates: CandidateDrafts) -> float:
        """Returns the seconds that a draft token adds to the target's step, near the latest plan's size."""
        num_requests, step = len(candidates.limits), candidates.step
        last = min(int((self._rows_per_request + 1) * num_requests), len(step) - 1)
        first = max(min(int((self._rows_per_request - 1) * num_requests), last - 1), 0)
        return float(step[last] - step[first]) / (last - first)

    def _learn(self) -> None:
        """Updates the proposers' models by all noted outcomes."""
        outcomes = self._notes.take()
        if outcomes is None:
            return
        rows = self._requests.add(outcomes.request_ids)
        for proposer, of_proposer in zip(self.proposers, outcomes.of_proposers, strict=True):
            asked, drafted, accepted = of_proposer
            proposer.learn(
                rows, asked, drafted, accepted, outcomes.nodes, outcomes.num_tokens, num_steps=self._num_unlearned
            )
        self._num_unlearned = 0

    def measured(self, step: MeasuredStep) -> None:
        """Updates cost models and the comparison by a finished step; of those with a reused plan, by the last ones."""
        self._num_unlearned += 1
        drafts = any(drafting.longest for drafting in step.drafting)
        expected = float(step.num_accepted)
        if step.forecast is not None:
            expected = step.forecast.tokens - step.forecast.plain_tokens
            if kept := self._kept:
                kept.lacking += _MIN_AS_EXPECTED * expected - step.num_accepted
                if kept.lacking > _TOLERANCE * math.sqrt(max(expected, 0.0)):
                    self._kept = None
                # Whatever came of it, as the comparison needs a fair sample.
                if kept.steps_left > 0 and drafts and step.has_drafts:
                    return
        drafting_seconds = sum([drafting.seconds for drafting in step.drafting])
        drafter, seconds = self._work_of_drafter(step), step.seconds
        if step.drafter_passes and not drafts:
            # Compared is a step without speculation: its drafter rests.
            seconds -= float(self.step_cost.drafter_seconds[:2] @ drafter[:2])
        self.step_cost.observe(
            step.num_tokens,
            step.num_requests,
            step.context,
            step.seconds - drafting_seconds,
            has_drafts=step.has_drafts or drafts,
            drafter=drafter,
        )
        catch_up = 0.0
        for proposer, drafting in zip(self.proposers, step.drafting, strict=True):
            proposer.measured(drafting)
            most = drafting.seconds if drafting.is_timed else seconds
            catch_up += min(drafting.caught_up * proposer.draft_cost.catch_up_seconds, most)
        compared = ComparedStep(
            step.num_tokens - step.num_drafts,
            step.num_requests,
            step.context,
            seconds,
            expected if step.has_drafts else 0,
            step.num_accepted,
            catch_up,
            step.has_drafts,
            drafts,
            self.forecast is not None,
        )
        self._comparison.measured(compared, self.step_cost)

    def _work_of_drafter(self, step: MeasuredStep) -> tuple[int, int, bool]:
        """Returns passes, rows and unevenness of a drafter whose time is part of a step, as `StepCost.observe`."""
        if all(each.is_timed for each in step.drafting):
            return 0, 0, False
        native = step.drafting[-1]
        # The first pass has a row per request, also where nothing is drafted.
        rows = native.num_drafted or step.num_requests * min(step.drafter_passes, 1)
        return step.drafter_passes, rows + native.caught_up, step.is_uneven

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Restarts the cost models from steps timed at start-up, as (tokens, seconds)."""
        self.step_cost = StepCost(self._max_step_tokens, steps)
        seconds = float(self.step_cost.seconds([1.0], 1, 0)[0])
        for proposer in self.proposers:
            proposer.probed(seconds)

    def forget(self, request_id: str) -> None:
        """Drops the state of a request that ended."""
        self._learn()
        self._kept = None
        self._notes.forget(request_id)
        self._requests.forget(request_id)


def _table(of_requests: Sequence[tuple[int, ...]], num_proposers: int) -> Ints:
    """Returns [n, L], a number per request and proposer."""
    # Faster for equal rows, which are usual.
    if of_requests.count(of_requests[0]) == len(of_requests):
        table = np.empty((len(of_requests), num_proposers), np.int64)
        table[:] = of_requests[0]
        return table
    count = len(of_requests) * num_proposers
    return np.fromiter(chain.from_iterable(of_requests), np.int64, count).reshape(-1, num_proposers)
