"""Connects vLLM's scheduler to the draft-length policy: limits of a step's drafts, and their outcomes."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.request_options import read_options
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.decisions import DecisionCounters, explain
from vllm_spec_plugin.scheduling.draft_length.control import (
    Batch,
    Drafting,
    DraftLengthControl,
    DraftRequest,
    Forecast,
)
from vllm_spec_plugin.scheduling.draft_limits import DraftLimits
from vllm_spec_plugin.scheduling.planned_step import UNMEASURED, PlannedStep
from vllm_spec_plugin.scheduling.request_gate import why_without_drafts
from vllm_spec_plugin.scheduling.uncomputed import UncomputedTokens
from vllm_spec_plugin.turns import Turns, asked, length_of

logger = logging.getLogger("vllm.vllm_spec_plugin")

_NO_TURNS: dict[str, Turns] = {}


class DraftLengthAdapter:
    """Lets the policy plan each step's drafts, and reports outcomes of drafts and times of steps to it.

    It runs in the scheduler's process only: draft lengths are decided once, and sent to the ranks.

    Work per request is done only for requests that may have drafts, in steps for which the policy plans drafts. A
    policy whose plans depend on limits alone (`is_constant`) is called once per combination of limits.

    Attributes:
        control: the policy.
        latest: turns of each request with turns in the latest plan.
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
        self.latest = _NO_TURNS
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
        # Steps that were planned and whose outcome is not known, and the latest one whose outcome is.
        self._planned: deque[PlannedStep] = deque()
        self._ended: PlannedStep | None = None
        # A step with turns whose drafts are being made, and the worker's `ModelRunnerOutput` of it.
        self._undrafted: tuple[PlannedStep, Any] | None = None
        # Of the latest plan, for the step that verifies its drafts.
        self._forecast: Forecast | None = None
        self._num_foreseen = 0
        self._started: float | None = None

    def add(self, request: Request) -> None:
        """Reads a new request's limits; one that is served without drafts is counted, and never planned for."""
        if reason := self._why_without_drafts(request):
            self._decisions.without_drafts(reason)
            return
        options = read_options(request.sampling_params.extra_args)
        limits = DraftLimits.of(request, options, self._most, self._proposers, self._max_model_len)
        if any(limits.usual):
            self._limits[request.request_id] = limits

    def _why_without_drafts(self, request: Request) -> str | None:
        return why_without_drafts(request)

    def forget(self, request_id: str) -> None:
        """Drops the state of a finished request."""
        self.pending.pop(request_id, None)
        self._uncomputed.forget(request_id)
        if self._limits.pop(request_id, None) is not None:
            self.control.forget(request_id)

    def started(self) -> None:
        """Ends the measurement of the step before, as the next one is being planned."""
        if not self.control.is_constant:
            now = time.perf_counter()
            self._finish(now)
            self._started = now

    def plan(self, output: Any, running: Sequence[Request], max_step_tokens: Callable[[], int]) -> dict[str, Turns]:
        """Plans the drafts at the end of a step that vLLM has planned.

        Args:
            output: vLLM's plan.
            running: all running requests.
            max_step_tokens: returns the number of tokens for which the next step has room.

        Returns:
            The turns, at least one, of each request of the step that gets drafts.
        """
        if self.control.is_constant:
            turns = self._plan_constant(output, running) if self._limits else _NO_TURNS
            if self._tracks_sources:
                self._planned.append(PlannedStep(turns=turns))
        else:
            turns = self._plan_step(output, running, max_step_tokens)
        self.latest = turns
        return turns

    def _plan_constant(self, output: Any, running: Sequence[Request]) -> dict[str, Turns]:
        scheduled, turns = output.num_scheduled_tokens, {}
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
        return turns

    def _constant_plan(self, limits: tuple[int, ...]) -> Turns:
        plan = self._constant.get(limits)
        if plan is None:
            request = DraftRequest("", limits, self._nothing)
            [plan] = self.control.plan([request], Batch(1, 1, 0, sum(limits)))
            self._constant[limits] = plan
        return plan

    def _plan_step(
        self, output: Any, running: Sequence[Request], max_step_tokens: Callable[[], int]
    ) -> dict[str, Turns]:
        kv_proposer = self._uncomputed.proposer
        if kv_proposer is not None:
            self._uncomputed.admit(output, self._limits)
        drafts, scheduled, num_running = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens, len(running)
        if not (self._limits or drafts):
            self._forecast = None
            self._planned.append(UNMEASURED)
            return _NO_TURNS
        may_draft = bool(self._limits and scheduled)
        is_off = may_draft and self.control.is_off(num_running)
        if is_off:
            off = scheduled.keys() & self._limits.keys()
            self._decisions.not_chosen(len(off))
            if self.latest:
                self._decisions.switched_off(off, self.latest)
            elif not drafts and self.control.skips(num_running):
                self._forecast = None
                self._planned.append(UNMEASURED)
                return _NO_TURNS
        step = PlannedStep(
            output.total_num_scheduled_tokens,
            len(scheduled),
            sum([request.num_computed_tokens for request in running]),
            drafting=self._no_drafting,
        )
        if drafts:
            step.num_drafts = sum(map(len, drafts.values()))
            step.has_drafts = step.num_drafts > 0
        self._planned.append(step)
        if step.num_requests == self._num_foreseen:
            step.forecast = self._forecast
        self._forecast, self._num_foreseen = None, step.num_requests
        if is_off or not may_draft:
            return _NO_TURNS
        requests, batch = self._requests(scheduled, running, step.context, max_step_tokens())
        if not requests:
            return _NO_TURNS
        chosen = self.control.plan(requests, batch)
        self._forecast = self.control.forecast
        for request, turns in zip(requests, chosen, strict=True):
            if turns:
                step.turns[request.request_id] = turns
                if kv_proposer is not None:
                    step.uncomputed[request.request_id] = request.uncomputed_tokens[kv_proposer]
        self._decisions.chosen(chosen)
        if self.latest and () in chosen:
            off = [request.request_id for request, turns in zip(requests, chosen, strict=True) if not turns]
            self._decisions.switched_off(off, self.latest)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", explain(requests, chosen, self._forecast, self.control.acceptance, self._methods))
        return step.turns

    def _requests(
        self, scheduled: Mapping[str, int], running: Sequence[Request], context: int, max_step_tokens: int
    ) -> tuple[list[DraftRequest], Batch]:
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
        return requests, Batch(base_tokens, len(running), context, max(max_step_tokens - base_tokens, 0), others)

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

    def verified(
        self, request_id: str, drafted: int, accepted: int, num_output_tokens: int, nodes: tuple[int, ...] | None
    ) -> int:
        """Reports the outcome of a step for a request that had drafts or turns.

        Args:
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
            self._planned[0].num_accepted += accepted
            self.control.verified(request_id, turns, source, drafted, accepted, num_output_tokens, nodes)
        return source or 0

    def updated(self, outcome: Any, *, num_output: int, is_busy: bool) -> None:
        """Updates the policy from the outcome of the earliest planned step.

        Args:
            outcome: the worker's `ModelRunnerOutput`.
            num_output: output tokens of the step.
            is_busy: whether another step follows at once.
        """
        if not self._tracks_sources:
            return
        step = self._planned.popleft()
        if step is UNMEASURED:
            return
        step.num_output = num_output
        if step.turns:
            self._undrafted = step, outcome
        if not self.control.is_constant:
            self._ended = step
            if not is_busy:
                self._finish(time.perf_counter())

    def drafted(self, requests: Mapping[str, Request], result: DraftResult) -> None:
        """Records the drafts of the step that `updated` was called for, if it had turns.

        Args:
            requests: requests that vLLM keeps, by id; with a KV connector also finished ones.
            result: the worker's message with the drafts.
        """
        if self._undrafted is None:
            return
        (step, outcome), self._undrafted = self._undrafted, None
        longest_asked, caught_up = self._await_drafts(step, requests, outcome, result.sources)
        if result.counters is not None:
            step.drafting = self._drafting(result.counters, longest_asked, caught_up)

    def _await_drafts(
        self, step: PlannedStep, requests: Mapping[str, Request], outcome: Any, sources: Mapping[str, int]
    ) -> tuple[list[int], int]:
        """Keeps turns and sources of the drafts that a step made until they are verified.

        Returns:
            Returns per proposer the longest planned draft, and the text tokens that the one with KV computed.
        """
        sampled, index = outcome.sampled_token_ids, outcome.req_id_to_index
        longest, caught_up, kv_proposer = [0] * len(self._proposers), 0, self._uncomputed.proposer
        for request_id, turns in step.turns.items():
            source, is_sampled = sources.get(request_id), bool(sampled and sampled[index[request_id]])
            is_alive = request_id in self._limits
            if is_sampled:
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
        started, self._started = self._started, None
        step, self._ended = self._ended, None
        if started is None or step is None or not step.num_tokens:
            return
        step.seconds = now - started
        if step.forecast is not None:
            self._decisions.compare(step.forecast, step.num_output, step.seconds)
        self.control.measured(step)
