"""Connects vLLM's scheduler to the draft-length policy: limits of a step's drafts, and their outcomes."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import ModelRunnerOutput, SchedulerOutput
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.request_options import read_options
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.control import (
    Drafting,
    DraftLengthControl,
    DraftRequest,
    StepBatch,
    StepMode,
)
from vllm_spec_plugin.scheduling.catch_up_tokens import UncomputedTokens
from vllm_spec_plugin.scheduling.decision_counters import DecisionCounters, explain
from vllm_spec_plugin.scheduling.draft_limits import DraftLimits
from vllm_spec_plugin.scheduling.eligibility import why_without_drafts
from vllm_spec_plugin.scheduling.step_ledger import Step, StepLedger
from vllm_spec_plugin.turns import Turns, asked, length_of

logger = logging.getLogger("vllm.vllm_spec_plugin")


class DraftLengthAdapter:
    """Lets the policy plan each step's drafts, and reports outcomes of drafts and times of steps to it.

    It runs in the scheduler's process only: draft lengths are decided once, and sent to the ranks.

    Work per request is done only for requests that may have drafts, in steps for which the policy plans drafts. A
    policy whose plans depend on limits alone (`is_constant`) is called once per combination of limits.

    A step goes through `started`, `plan`, `take_step`, `verified`, `ended` and, if it drafts, `drafted`.

    Attributes:
        control: the policy.
        ledger: steps that were planned and have not ended.
        pending: turns and source of requests that had turns in the latest step that sampled them.
    """

    def __init__(
        self, control: DraftLengthControl, config: PluginConfig, max_model_len: int, counters: CountersByMethod
    ) -> None:
        """Connects a policy.

        Args:
            control: the policy.
            config: the plugin's configuration.
            max_model_len: maximum tokens of a request.
            counters: counters to which decisions are added.
        """
        self.control = control
        self.ledger = StepLedger()
        self._proposers = config.proposers
        self._methods = [proposer.method for proposer in config.proposers]
        self._decisions = DecisionCounters(counters, config.proposer.method, self._methods)
        self._most = config.draft_length.tokens
        self._max_model_len = max_model_len
        self._uncomputed = UncomputedTokens(config.kv_proposer, len(self._proposers))
        self._nothing = (0,) * len(self._proposers)
        self._no_drafting = (Drafting(0, 0, 0, 0.0),) * len(self._proposers)
        # Of requests that may be drafted for, while they live.
        self._limits: dict[str, DraftLimits] = {}
        # A constant policy's plans by limits.
        self._constant: dict[tuple[int, ...], Turns] = {}
        # Not needed for one proposer with a constant policy.
        self.pending: dict[str, tuple[Turns, int | None]] = {}
        self._tracks_sources = not control.is_constant or len(self._proposers) > 1
        # The latest step whose outcome is known: its drafts may still be made.
        self._ended: Step | None = None

    def add(self, request: Request) -> None:
        """Reads a new request's limits; one that is served without drafts is counted, and never planned for."""
        if reason := self._why_without_drafts(request):
            self._decisions.without_drafts(reason)
            return
        assert request.sampling_params is not None, "it would have a reason"
        options = read_options(request.sampling_params.extra_args)
        limits = DraftLimits.of(
            request.num_prompt_tokens + request.max_tokens, options, self._most, self._proposers, self._max_model_len
        )
        if any(limits.usual):
            self._limits[request.request_id] = limits

    def _why_without_drafts(self, request: Request) -> str | None:
        """Returns why a request gets no drafts; one of `WITHOUT_DRAFTS`."""
        params = request.sampling_params
        budget = None if params is None else params.thinking_token_budget
        return why_without_drafts(params is not None, budget, request.resumable, request.prompt_embeds)

    def forget(self, request_id: str) -> None:
        """Drops the state of a finished request."""
        self.pending.pop(request_id, None)
        self._uncomputed.forget(request_id)
        if self._limits.pop(request_id, None) is not None:
            self.control.forget(request_id)
            if not self._limits:
                self.ledger.clear()

    @property
    def latest(self) -> dict[str, Turns]:
        """Turns of each request with turns in the latest plan."""
        return self.ledger.latest.turns

    @property
    def to_draft(self) -> Mapping[str, Turns]:
        """Turns of each request with turns in the step whose outcome came last."""
        return self._ended.turns if self._ended is not None else {}

    def started(self) -> None:
        """Begins a step, whose planning starts; the step before ends."""
        now = time.perf_counter()
        self._finish(now)
        self.ledger.begin(now)

    def admitted(self, output: SchedulerOutput, loaded: Mapping[str, int]) -> None:
        """Notes what a proposer with KV finds of texts that a step admits.

        Args:
            output: vLLM's plan.
            loaded: see `StepPlan`.
        """
        if self._uncomputed.proposer is not None and not self.control.is_constant:
            self._uncomputed.admit(output, self._limits, loaded)

    def plan(
        self, output: SchedulerOutput, running: Sequence[Request], max_step_tokens: Callable[[], int]
    ) -> dict[str, Turns]:
        """Plans the drafts at the end of a step that vLLM has planned.

        Args:
            output: vLLM's plan.
            running: all running requests.
            max_step_tokens: returns the number of tokens for which the next step has room.

        Returns:
            The turns, at least one, of each request of the step that gets drafts.
        """
        step = self.ledger.latest
        if self.control.is_constant:
            if self._limits:
                self._plan_constant(step, output, running)
        else:
            self._plan_step(step, output, running, max_step_tokens)
        return step.turns

    def _plan_constant(self, step: Step, output: SchedulerOutput, running: Sequence[Request]) -> None:
        scheduled, turns = output.num_scheduled_tokens, step.turns
        for request in running:
            request_id = request.request_id
            own = self._limits.get(request_id)
            if own is None or request_id not in scheduled:
                continue
            limits = own.at(request.num_tokens)
            if limits is not None:
                turns[request_id] = self._constant_plan(limits)
        if turns:
            self._decisions.chosen(turns.values())

    def _constant_plan(self, limits: tuple[int, ...]) -> Turns:
        plan = self._constant.get(limits)
        if plan is None:
            request = DraftRequest("", limits, self._nothing)
            [plan] = self.control.plan([request], StepBatch(1, 1, 0, sum(limits)))
            self._constant[limits] = plan
        return plan

    def _plan_step(
        self, step: Step, output: SchedulerOutput, running: Sequence[Request], max_step_tokens: Callable[[], int]
    ) -> None:
        kv_proposer, before = self._uncomputed.proposer, self.ledger.before
        drafts, scheduled, num_running = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens, len(running)
        if not (self._limits or drafts):
            return
        mode = None
        if self._limits and scheduled:
            mode = self.control.begin_step(num_running, may_skip=not (drafts or before.turns))
            if mode is not StepMode.DRAFTS:
                off = scheduled.keys() & self._limits.keys()
                self._decisions.not_chosen(len(off))
                if before.turns:
                    self._decisions.switched_off(off, before.turns)
                if mode is StepMode.SKIPPED:
                    return
        step.is_measured, step.drafting = True, step.drafting or self._no_drafting
        step.num_tokens, step.num_requests = output.total_num_scheduled_tokens, len(scheduled)
        step.context = sum([request.num_computed_tokens for request in running])
        if drafts:
            step.num_drafts = sum(map(len, drafts.values()))
            step.has_drafts = step.num_drafts > 0
        if step.num_requests == before.num_requests:
            step.forecast = before.promise
        if mode is not StepMode.DRAFTS:
            return
        requests, batch = self._requests(scheduled, running, step.context, max_step_tokens())
        if not requests:
            return
        chosen = self.control.plan(requests, batch)
        step.promise = self.control.forecast
        for request, turns in zip(requests, chosen, strict=True):
            if turns:
                step.turns[request.request_id] = turns
                if kv_proposer is not None:
                    step.uncomputed[request.request_id] = request.uncomputed_tokens[kv_proposer]
        self._decisions.chosen(chosen)
        if before.turns and () in chosen:
            left_out = [request.request_id for request, turns in zip(requests, chosen, strict=True) if not turns]
            self._decisions.switched_off(left_out, before.turns)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", explain(requests, chosen, step.promise, self.control.acceptance, self._methods))

    def _requests(
        self, scheduled: Mapping[str, int], running: Sequence[Request], context: int, max_step_tokens: int
    ) -> tuple[list[DraftRequest], StepBatch]:
        """Returns the planned step's requests that may have drafts, and the batch that will verify them."""
        requests, base_tokens, others = [], 0, 0
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
            own = self._limits.get(request_id)
            limits = None if own is None else own.at(num_tokens)
            if limits is None:
                others += not is_chunk
                continue
            if keeps_kv:
                uncomputed = self._uncomputed.of(request_id, num_tokens)
            requests.append(DraftRequest(request_id, limits, uncomputed, request.num_output_tokens))
        return requests, StepBatch(base_tokens, len(running), context, max(max_step_tokens - base_tokens, 0), others)

    def source(self, request_id: str) -> int:
        """Returns the index of the proposer of the waiting drafts; that of the first proposer if it is not known."""
        _, source = self.pending.get(request_id, ((), None))
        return source or 0

    def note_estimates(self) -> None:
        """Adds the policy's present estimates of acceptance to the counters."""
        self._decisions.estimated(self.control.acceptance)

    def is_served(self, request_id: str) -> bool:
        """Whether a request may have drafts, and has not ended. A KV connector may keep finished ones."""
        return request_id in self._limits

    def take_step(self) -> Step:
        """Returns the earliest planned step, of which the outcome has come."""
        return self.ledger.take()

    def verified(
        self,
        step: Step,
        request_id: str,
        drafted: int,
        accepted: int,
        num_output_tokens: int,
        nodes: tuple[int, ...] | None,
    ) -> int:
        """Reports the outcome of a step for a request that had drafts or turns.

        Args:
            step: the step, from `take_step`.
            request_id: the request.
            drafted: draft tokens that were verified; 0 if there were none.
            accepted: draft tokens that were accepted.
            num_output_tokens: output tokens of the request, those of the step included.
            nodes: of a tree with branches, numbers of the accepted nodes in the order sent; None for chains.

        Returns:
            Index of the drafts' proposer.
        """
        pending = self.pending.pop(request_id, None)
        if pending is None:
            return 0
        turns, source = pending
        if not self.control.is_constant:
            step.num_accepted += accepted
            self.control.verified(request_id, turns, source, drafted, accepted, num_output_tokens, nodes)
        return source or 0

    def ended(self, step: Step, outcome: ModelRunnerOutput, *, num_output: int, is_busy: bool) -> None:
        """Takes a step whose outcome has come; it ends with the planning of the next one.

        Args:
            step: the step, from `take_step`.
            outcome: the worker's `ModelRunnerOutput` of it.
            num_output: output tokens of the step.
            is_busy: whether another step follows at once.
        """
        if step.turns and self._tracks_sources and (sampled := outcome.sampled_token_ids):
            index = outcome.req_id_to_index
            step.sampled = {request_id for request_id in step.turns if sampled[index[request_id]]}
        step.num_output, self._ended = num_output, step
        if not is_busy:
            self._finish(time.perf_counter())

    def drafted(self, requests: Mapping[str, Request], result: DraftResult) -> None:
        """Records the drafts of the step that ended last, if it had turns.

        Args:
            requests: requests that vLLM keeps, by id; with a KV connector also finished ones.
            result: the worker's message with the drafts.
        """
        step = self._ended
        if step is None or not step.turns or not self._tracks_sources:
            return
        longest_asked, caught_up = self._await_drafts(step, requests, result.sources)
        if result.counters is not None:
            step.drafting = self._drafting(result.counters, longest_asked, caught_up)

    def _await_drafts(
        self, step: Step, requests: Mapping[str, Request], sources: Mapping[str, int]
    ) -> tuple[list[int], int]:
        """Keeps turns and sources of the drafts that a step made until they are verified.

        Returns:
            Returns per proposer the longest planned draft, and the text tokens that the one with KV computed.
        """
        longest, caught_up, kv_proposer = [0] * len(self._proposers), 0, self._uncomputed.proposer
        for request_id, turns in step.turns.items():
            source, is_alive = sources.get(request_id), request_id in self._limits
            if request_id in step.sampled:
                turns_taken = turns if len(turns) == 1 else asked(turns, source)
                for i, length in turns_taken:
                    if length > longest[i]:
                        longest[i] = length
                if is_alive:
                    self.pending[request_id] = (turns, source)
            else:
                # Of a text that is not through, the first proposer computes what there is, if it keeps KV.
                turns_taken = turns[:1]
            if kv_proposer is not None and length_of(turns_taken, kv_proposer):
                caught_up += step.uncomputed.get(request_id, 0)
                if is_alive:
                    self._uncomputed.computed(request_id, requests[request_id].num_tokens)
        return longest, caught_up

    def _drafting(self, counted: CountersByMethod, longest: Sequence[int], caught_up: int) -> tuple[Drafting, ...]:
        drafting = []
        for i, proposer in enumerate(self._proposers):
            did = counted.of(proposer.method)
            tokens = caught_up if i == self._uncomputed.proposer else 0
            drafting.append(Drafting(longest[i], did.draft_tokens, tokens, did.proposer_seconds))
        return tuple(drafting)

    def _finish(self, now: float) -> None:
        step, self._ended = self._ended, None
        if step is None:
            return
        self.ledger.finish(step, now)
        self._measured(step)

    def _measured(self, step: Step) -> None:
        """Tells the policy of a step whose time is known."""
        if not step.is_measured or not step.num_tokens:
            return
        if step.forecast is not None:
            self._decisions.compare(step.forecast, step.num_output, step.seconds)
        self.control.measured(step)
