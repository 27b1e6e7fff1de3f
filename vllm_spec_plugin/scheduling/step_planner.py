"""Plans a step's drafts by the policy, for the requests that may have some."""

import logging
from collections.abc import Callable, Sequence

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import SchedulerOutput
from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.policy.control import DraftLengthControl, DraftRequest, StepBatch
from vllm_spec_plugin.scheduling.catch_up_tokens import UncomputedTokens
from vllm_spec_plugin.scheduling.decision_counters import DecisionCounters, explain
from vllm_spec_plugin.scheduling.served_requests import ServedRequests
from vllm_spec_plugin.scheduling.steps import Step

logger = logging.getLogger("vllm.vllm_spec_plugin")


class StepPlanner:
    """Asks the policy for each request's draft plan.

    Work per request is done only for requests that may have drafts, in steps for which the policy plans drafts. A
    policy whose plans depend on limits alone (`is_constant`) is called once per combination of limits.
    """

    def __init__(
        self,
        control: DraftLengthControl,
        requests: ServedRequests,
        uncomputed: UncomputedTokens,
        decisions: DecisionCounters,
        methods: Sequence[str],
    ) -> None:
        """Connects a policy.

        Args:
            control: the policy.
            requests: requests that may have drafts.
            uncomputed: what the proposer with KV of its own has to compute.
            decisions: counts of the policy's decisions.
            methods: the proposers' methods.
        """
        self._control, self._served, self._uncomputed = control, requests, uncomputed
        self._decisions, self._methods, self._nothing = decisions, methods, (0,) * len(methods)
        # A constant policy's plans by limits.
        self._constant: dict[tuple[int, ...], DraftPlan] = {}

    def plan(
        self,
        step: Step,
        before: Step,
        output: SchedulerOutput,
        running: Sequence[Request],
        max_step_tokens: Callable[[], int],
    ) -> None:
        """Plans the drafts at the end of a step that vLLM has planned.

        Args:
            step: the step, to which its plan is added.
            before: the step that was planned before it.
            output: vLLM's plan.
            running: all running requests.
            max_step_tokens: returns the number of tokens for which the next step has room.
        """
        drafts, scheduled, num_running = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens, len(running)
        if self._control.is_constant:
            if self._served.ids and self._served.max_tokens:
                self._plan_constant(step, output, running)
            return
        if not (self._served.ids or drafts):
            return
        is_asked = bool(self._served.ids and scheduled)
        drafts_now = is_asked and self._served.max_tokens > 0 and self._control.begin_step(num_running)
        if is_asked and not drafts_now:
            off = scheduled.keys() & self._served.ids
            self._decisions.not_chosen(len(off))
            if before.draft_plans:
                self._decisions.switched_off(off, before.draft_plans)
        step.is_measured = True
        step.num_tokens, step.num_requests = output.total_num_scheduled_tokens, len(scheduled)
        step.context = sum([request.num_computed_tokens for request in running])
        if drafts:
            step.num_drafts = sum(map(len, drafts.values()))
            step.has_drafts = step.num_drafts > 0
        if step.num_requests == before.num_requests:
            step.forecast = before.next_forecast
        if not drafts_now:
            return
        requests, batch = self._requests(step, output, running, max_step_tokens())
        if not requests:
            return
        chosen, kv_proposer = self._control.plan(requests, batch), self._uncomputed.proposer
        step.next_forecast = self._control.forecast
        planned = [each for each in zip(requests, chosen, strict=True) if each[1]]
        step.draft_plans = {request.request_id: draft_plan for request, draft_plan in planned}
        if kv_proposer is not None:
            step.uncomputed = {request.request_id: request.uncomputed_tokens[kv_proposer] for request, _ in planned}
        self._decisions.chosen(chosen)
        if before.draft_plans and () in chosen:
            left_out = [
                request.request_id for request, draft_plan in zip(requests, chosen, strict=True) if not draft_plan
            ]
            self._decisions.switched_off(left_out, before.draft_plans)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", explain(requests, chosen, step.next_forecast, self._control.acceptance, self._methods))

    def _plan_constant(self, step: Step, output: SchedulerOutput, running: Sequence[Request]) -> None:
        scheduled, draft_plans = output.num_scheduled_tokens, step.draft_plans
        for request in running:
            request_id = request.request_id
            limits = self._served.limits(request, output) if request_id in scheduled else None
            if limits is not None:
                draft_plans[request_id] = self._constant_plan(limits)
                if request.is_prefill_chunk:
                    step.in_prompt.add(request_id)
        if draft_plans:
            self._decisions.chosen(list(draft_plans.values()))

    def _constant_plan(self, limits: tuple[int, ...]) -> DraftPlan:
        plan = self._constant.get(limits)
        if plan is None:
            request = DraftRequest("", limits, self._nothing)
            [plan] = self._control.plan([request], StepBatch(1, 1, 0, sum(limits)))
            self._constant[limits] = plan
        return plan

    def _requests(
        self, step: Step, output: SchedulerOutput, running: Sequence[Request], max_step_tokens: int
    ) -> tuple[list[DraftRequest], StepBatch]:
        """Returns the planned step's requests that may have drafts, and the batch that will verify them."""
        scheduled, requests, base_tokens, others = output.num_scheduled_tokens, [], 0, 0
        uncomputed, keeps_kv = self._nothing, self._uncomputed.proposer is not None
        for request in running:
            request_id = request.request_id
            if request_id not in scheduled:
                continue
            num_tokens, is_chunk = request.num_tokens, request.is_prefill_chunk
            if is_chunk:
                base_tokens += min(num_tokens - request.num_computed_tokens, max(max_step_tokens - base_tokens, 0))
            else:
                base_tokens += 1
            limits = self._served.limits(request, output)
            if limits is None:
                others += not is_chunk
                continue
            if is_chunk:
                step.in_prompt.add(request_id)
            if keeps_kv:
                uncomputed = self._uncomputed.of(request_id, num_tokens)
            requests.append(DraftRequest(request_id, limits, uncomputed, request.num_output_tokens))
        room = max(max_step_tokens - base_tokens, 0)
        return requests, StepBatch(base_tokens, len(running), step.context, room, others)
