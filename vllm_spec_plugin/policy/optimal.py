"""Chooses draft lengths for the most expected tokens per second of the batch, K = 0 included."""

import logging
from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.policy.acceptance import Acceptance
from vllm_spec_plugin.policy.control import DraftRequest, MeasuredStep, Off, StepBatch, StepForecast
from vllm_spec_plugin.policy.costs import Costs, ProposerTraits
from vllm_spec_plugin.policy.memory import Learned
from vllm_spec_plugin.policy.on_off import ComparedStep, OnOffComparison
from vllm_spec_plugin.policy.request_rows import RequestRows
from vllm_spec_plugin.policy.step_plan import Plans, plan_step, table_of

# Steps after which costs are worth keeping.
_LEARNED = 64
# Maximum share of a step's time that verification may add in a step with prompts.
_MAX_DELAY = 0.15
# Plans without drafts in a row after which drafting counts as off for a short time, and for long.
_SHORT, _LONG = 7, 31
# Plans with drafts of which one is a token longer than the best, for drafters whose time is part of the step: the cost
# and gain of longer drafts are not measured otherwise.
_LONGER = 16


logger = logging.getLogger("vllm.vllm_spec_plugin")


class OptimalControl:
    """Plans by measured acceptance and measured time; also measures whether drafting gains at all.

    - `Acceptance`: of each proposer, by request and position.
    - `StepCost`, `DraftCost`: seconds of the target's steps, and of drafting that is measured by itself.
    - `allocate`: the plan with the most expected output tokens per second.
    - `OnOffComparison`, by powers of two of the number of requests: compares measured steps with drafts and without,
      and switches off drafting that loses.

    Attributes:
        costs: measured costs.
        forecast: see `DraftLengthControl`.
        off: see `DraftLengthControl`; after many plans without drafts they count as off, too.
        least_acceptance: see `DraftLengthControl`.
    """

    is_constant = False

    def __init__(
        self,
        proposers: Sequence[ProposerTraits],
        half_life: float,
        max_step_tokens: int,
        learned: Learned | None = None,
    ) -> None:
        """Starts without observations.

        Args:
            proposers: traits of each proposer, in the order of the configuration.
            half_life: output tokens of a request in which what is known of it halves.
            max_step_tokens: maximum tokens of a step.
            learned: what a former server learned; ignored if it is of other proposers. None for nothing.
        """
        sizes = [each.num_positions for each in proposers]
        memory = learned if learned is not None and learned.fits(len(sizes), max(sizes)) else None
        self.costs, self._memory = Costs(proposers, max_step_tokens, memory), memory
        self._acceptance = Acceptance.of(sizes, [each.is_tree for each in proposers], half_life, memory)
        # By bit length of the number of requests.
        verdicts = memory.verdicts if memory is not None else {}
        self._comparisons = {size: OnOffComparison(verdict) for size, verdict in verdicts.items()}
        self._rows = RequestRows(len(proposers))
        # Bound directly: it is called for each request in each step.
        self.verified = self._rows.verified
        self._plans = Plans(len(proposers), self._acceptance.log_odds.shape[1])
        self.forecast: StepForecast | None = None
        self.off, self.least_acceptance = Off.NOT, 0.0
        # Steps since the latest plan, plans without drafts in a row, and plans with drafts.
        self._num_unlearned = self._num_empty = self._num_drafting = 0
        # Of the latest plan: tokens per second over those of no drafts, and draft tokens per request.
        self._speedup, self._rows_per_request = 1.0, 0.0

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """Per proposer and position, see `Acceptance.average`."""
        return tuple([self._acceptance.average(i) for i in range(len(self.costs.table))])

    def begin_step(self, num_requests: int) -> bool:
        """Drafts, unless drafts lose by measurement, or steps without are being measured."""
        comparison = self._comparison(num_requests)
        if comparison.is_off:
            self.off, self.forecast, self._num_empty = comparison.off, None, 0
        elif not self._num_empty:
            self.off = Off.NOT
        return not comparison.is_off

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """See `DraftLengthControl`."""
        steps = self.costs.step_cost.seconds(np.arange(num_tokens, num_tokens + limit + 1), num_requests, context)
        return int(np.searchsorted(steps, (1 + _MAX_DELAY) * steps[0], side="right")) - 1

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Learns from the outcomes since the last plan, and returns each request's draft plan, within its limits."""
        self.forecast = None
        if not requests:
            return []
        request_ids, limits, uncomputed, num_output = zip(*requests, strict=True)
        rows, num_proposers = self._rows.add(request_ids), len(self.costs.table)
        codes, value, (plain, per_token, self.least_acceptance) = plan_step(
            self._acceptance,
            self._rows.effects,
            self._rows.num_output,
            self._rows.take(),
            rows,
            np.array(num_output, np.int64),
            table_of(limits, num_proposers),
            table_of(uncomputed, num_proposers),
            self.costs.table,
            self.costs.in_step,
            self.costs.step_cost.times,
            batch,
            self._num_unlearned,
            self._speedup,
            self._rows_per_request,
            self._num_drafting % _LONGER == _LONGER - 1,
        )
        self._num_unlearned = 0
        self._rows.free()
        num_outputs = len(requests) + batch.others
        self._speedup = value.tokens / value.seconds * plain / num_outputs
        self._rows_per_request = value.rows / len(requests)
        self._num_empty = 0 if value.positions else self._num_empty + 1
        self._num_drafting += value.positions > 0
        self.off = Off.NOT if self._num_empty < _SHORT else Off.SHORT if self._num_empty < _LONG else Off.LONG
        self.forecast = StepForecast(value.tokens, value.seconds, num_outputs, plain, per_token)
        plans = self._plans
        return [plans[code] for code in codes.tolist()]

    def measured(self, step: MeasuredStep) -> None:
        """Updates cost models and the comparison by a finished step."""
        self._num_unlearned += 1
        seconds, catch_up, has_drafts = self.costs.observe(step)
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
        self._comparison(step.num_requests).measured(compared, self.costs.step_cost.times)
        if self.costs.is_other_machine():
            self._drop_memory()

    def _comparison(self, num_requests: int) -> OnOffComparison:
        """Returns the comparison of a class of batch sizes."""
        size = num_requests.bit_length()
        if size not in self._comparisons:
            self._comparisons[size] = OnOffComparison(must_gain=self.costs.must_gain(num_requests))
        return self._comparisons[size]

    def _drop_memory(self) -> None:
        """Forgets a former server's verdicts, not its acceptance, which depends on models and texts alone."""
        if self._memory is not None:
            logger.info("draft_length.memory: steps take another time here than it says: only its acceptance is used")
        self._memory, self._comparisons = None, {}

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Restarts the cost models from steps timed at start-up, as (tokens, seconds), unless a former server's fit."""
        if not self.costs.probed(steps):
            self._drop_memory()

    def learned(self) -> Learned | None:
        """Returns acceptance, costs and verdicts."""
        times, model = self.costs.step_cost.times, self._acceptance
        if self.costs.step_cost.num_observations < _LEARNED:
            return self._memory
        costs = [() if cost is None else cost.coefficients for cost in self.costs.draft_costs]
        verdicts = {size: comparison.learned() for size, comparison in self._comparisons.items()}
        return Learned(
            log_odds=model.log_odds.tolist(),
            information=model.information.tolist(),
            variance=model.variance.tolist(),
            step_tokens=times.at[:-1].tolist(),
            step_seconds=times.curve[:-1].tolist(),
            step_others=times.others.tolist(),
            draft_costs=[list(map(float, each)) for each in costs],
            verdicts={size: verdict for size, verdict in verdicts.items() if verdict is not None},
        )

    def forget(self, request_id: str) -> None:
        """Drops the state of a request that ended."""
        self._rows.forget(request_id)
