"""Connects vLLM's scheduler to the draft-length policy: plans of a step's drafts, and their outcomes."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import SchedulerOutput
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.draft_plan import length_of, tried
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.control import Drafting, DraftLengthControl
from vllm_spec_plugin.scheduling.catch_up_tokens import UncomputedTokens
from vllm_spec_plugin.scheduling.decision_counters import DecisionCounters
from vllm_spec_plugin.scheduling.operator_switch import OperatorSwitch
from vllm_spec_plugin.scheduling.served_requests import ServedRequests
from vllm_spec_plugin.scheduling.step_planner import StepPlanner
from vllm_spec_plugin.scheduling.steps import Drafted, Step, Verified

_NO_STEP = Step(rests=True)


class DrafterTraits(NamedTuple):
    """Traits of a drafter in vLLM's runner, the last proposer of a configuration, that planning needs.

    Attributes:
        is_async: whether steps are planned before the last outcome is known. Then a step's outcome comes before its
            drafting ends, which is part of the next step's time.
        bounds_min_tokens: whether no draft may reach the `min_tokens` of its request.
        samples_drafts: whether drafts of requests that sample are sampled.
    """

    is_async: bool = False
    bounds_min_tokens: bool = False
    samples_drafts: bool = False


class DraftLengthAdapter:
    """Lets the policy plan each step's drafts, and reports outcomes of drafts and times of steps to it.

    It runs in the scheduler's process only: draft lengths are decided once, and sent to the ranks.

    A step goes through `plan`, `take_step`, `verified`, `ended` and, unless vLLM's runner alone drafts, `drafted`.
    Its time ends with its outcome, and begins with the outcome before, or with its planning after a pause. So it
    includes the drafting of what it verifies, and that of a drafter in the runner.

    Attributes:
        control: the policy.
        requests: requests that may have drafts.
        native: index of the drafter in vLLM's runner; None without one.
        latest: the step that was planned last.
        latest_ended: the step whose outcome came last; with synchronous scheduling until another is planned.
    """

    def __init__(
        self,
        control: DraftLengthControl,
        config: PluginConfig,
        max_model_len: int,
        counters: CountersByMethod,
        drafter: DrafterTraits | None = None,
        switch: OperatorSwitch | None = None,
    ) -> None:
        """Connects a policy.

        Args:
            control: the policy.
            config: the plugin's configuration.
            max_model_len: maximum tokens of a request.
            counters: counters to which decisions are added.
            drafter: the drafter in vLLM's runner; None without one.
            switch: limits of all requests, which may change at run time; None without any.
        """
        self.control, self._counters, self._proposers = control, counters, config.proposers
        self.native = None if drafter is None else len(self._proposers) - 1
        self._methods = [proposer.method for proposer in self._proposers]
        self._grammar = next((i for i, proposer in enumerate(self._proposers) if proposer.uses_grammar), 0)
        self._decisions = DecisionCounters(counters, config.proposer.method, self._methods)
        traits = drafter or DrafterTraits()
        self._is_async = traits.is_async
        self.requests = ServedRequests(
            config,
            max_model_len,
            bounds_min_tokens=traits.bounds_min_tokens,
            samples_drafts=traits.samples_drafts,
        )
        self._uncomputed = UncomputedTokens(config.kv_proposer, len(self._proposers))
        self._planner = StepPlanner(control, self.requests, self._uncomputed, self._decisions, self._methods)
        self._no_drafting = (Drafting(0, 0, 0, 0.0),) * len(self._proposers)
        # Of drafts that wait to be verified; not needed for one proposer with a constant policy. And the work on them.
        self._waiting: dict[str, Drafted] = {}
        self._drafting = self._no_drafting
        self._tracks_sources = not control.is_constant or len(self._proposers) > 1
        self._under_way: deque[Step] = deque()
        self.latest = self.latest_ended = _NO_STEP
        self._last_outcome, self._is_busy = 0.0, False
        self._switch = switch
        self._limit()

    def add(self, request: Request) -> None:
        """Takes a new request; one that is served without drafts is counted, and never planned for."""
        if reason := self.requests.add(request):
            self._decisions.without_drafts(reason)

    def forget(self, request_id: str) -> None:
        """Drops the state of a finished request."""
        self._waiting.pop(request_id, None)
        self._uncomputed.forget(request_id)
        if self.requests.forget(request_id):
            self.control.forget(request_id)
            if not self.requests.ids:
                self.latest = self.latest_ended = _NO_STEP

    def _limit(self) -> None:
        """Applies the operator's switch to all requests."""
        if self._switch is not None and self._switch.max_tokens != self.requests.max_tokens:
            self.requests.cap(self._switch.max_tokens)
            self._decisions.capped(self._switch.max_tokens)

    def now(self) -> float:
        """Returns the time, for `plan`."""
        return time.perf_counter()

    def plan(
        self, output: SchedulerOutput, running: Sequence[Request], max_step_tokens: Callable[[], int], begun: float
    ) -> Step:
        """Plans the drafts at the end of a step that vLLM has planned.

        Args:
            output: vLLM's plan.
            running: all running requests.
            max_step_tokens: returns the number of tokens for which the next step has room.
            begun: the time (`now`) when the planning of the step began.

        Returns:
            The step, with the draft plan of each request that gets drafts.
        """
        if self._switch is not None and self._switch.look(begun):
            self._limit()
        before, self.latest = self.latest, Step(begun=begun, drafting=self._drafting)
        step, self._drafting = self.latest, self._no_drafting
        if not self._is_async:
            self.latest_ended = _NO_STEP
        self._under_way.append(step)
        step.drafted_as = self._take_drafts(before, output)
        if self._uncomputed.proposer is not None and not self.control.is_constant:
            self._uncomputed.admit(output, self.requests.ids)
        self._planner.plan(step, before, output, running, max_step_tokens)
        if self.native is not None and step.is_measured:
            step.is_uneven = len(set(output.num_scheduled_tokens.values())) > 1
        return step

    def _take_drafts(self, before: Step, output: SchedulerOutput) -> dict[str, Drafted]:
        """Returns how the drafts were made that a step may verify."""
        scheduled, waiting = output.num_scheduled_tokens, self._waiting
        if self.native == 0:
            # All are the drafter's, of the latest step.
            plans, no_drafts = before.draft_plans, before.in_prompt
            if not self._tracks_sources or not plans:
                return {}
            return {name: (plans[name], 0, None) for name in plans if name in scheduled and name not in no_drafts}
        taken = {name: waiting.pop(name) for name in scheduled if name in waiting} if waiting else {}
        if self.native is not None:
            # vLLM's runner keeps drafts for one step.
            waiting.clear()
        return taken

    def source(self, request_id: str) -> int:
        """Returns the index of the proposer of the waiting drafts; that of the first proposer if it is not known."""
        _, source, _ = self._waiting.get(request_id, ((), None, None))
        return source or 0

    def note_estimates(self) -> None:
        """Adds the policy's present estimates of acceptance to the counters."""
        self._decisions.estimated(self.control.acceptance)

    def take_step(self) -> Step:
        """Returns the earliest planned step, of which the outcome has come."""
        return self._under_way.popleft()

    def verified(
        self,
        step: Step,
        request_id: str,
        drafted: int,
        accepted: int,
        nodes: tuple[int, ...] | None = None,
    ) -> tuple[Verified, ...]:
        """Reports the outcome of a step for a request that had drafts or a draft plan.

        Args:
            step: the step, from `take_step`.
            request_id: the request.
            drafted: draft tokens that were verified; 0 if there were none.
            accepted: draft tokens that were accepted.
            nodes: of a tree with branches, numbers of the accepted nodes in the order sent; None for chains.

        Returns:
            The outcome by proposer: of the one that drafted, and of a grammar that continued the draft, if verification
            has come to its part.
        """
        made = step.drafted_as.get(request_id)
        if made is None:
            return ((self.native or 0, drafted, accepted),)
        draft_plan, source, length = made
        step.num_accepted += accepted
        if length is None or drafted <= length:
            if not self.control.is_constant:
                self.control.verified(request_id, draft_plan, source, drafted, accepted, nodes)
            return ((source or 0, drafted, accepted),)
        continuation, more = drafted - length, accepted - length
        own = source or 0, length, min(accepted, length)
        if not self.control.is_constant:
            self.control.verified(request_id, draft_plan, source, *own[1:], nodes)
        if more < 0:
            return (own,)
        if not self.control.is_constant:
            planned = ((self._grammar, continuation),)
            self.control.verified(request_id, planned, self._grammar, continuation, more)
        return own, (self._grammar, continuation, more)

    def ended(self, step: Step, num_output: int, *, is_busy: bool) -> None:
        """Takes a step whose outcome has come, and reports its time to the policy.

        Args:
            step: the step, from `take_step`.
            num_output: output tokens of the step.
            is_busy: whether another step follows at once.
        """
        now = self.now()
        begun = self._last_outcome if self._is_busy else max(step.begun, self._last_outcome)
        step.seconds, step.num_output = now - begun, num_output
        if self.native is not None:
            self._add_drafter(step, self.latest_ended if self._is_async else step, self.native)
        self._last_outcome, self._is_busy, self.latest_ended = now, is_busy, step
        if not step.is_measured or not step.num_tokens:
            return
        if step.forecast is not None:
            self._decisions.compare(step.forecast, num_output, step.seconds)
        self.control.measured(step)

    def _add_drafter(self, step: Step, drafted_in: Step, drafter: int) -> None:
        """Adds the work of a drafter in the runner to a step, whose time it is part of."""
        longest = drafted_in.longest(drafter)
        # vLLM's drafters make the first pass also for no drafts.
        passes = 0 if drafted_in.rests else 1 if self._proposers[drafter].drafts_in_one_pass else max(longest, 1)
        step.drafter_passes = passes + (drafted_in.caught_up > 0)
        self._counters.of(self._methods[drafter]).drafter_passes += step.drafter_passes
        num_drafted = longest * drafted_in.num_requests
        native = Drafting(longest, num_drafted, drafted_in.caught_up, 0.0, is_timed=False)
        step.drafting = (*step.drafting[:drafter], native)

    def drafted(self, requests: Mapping[str, Request], result: DraftResult) -> None:
        """Records the drafts after the step that ended last, if it had draft plans; the next step verifies them.

        Args:
            requests: requests that vLLM keeps, by id; with a KV connector also finished ones.
            result: the drafts of proposers outside vLLM's runner; a drafter in it has drafted for all others.
        """
        step = self.latest_ended
        if not step.draft_plans or not self._tracks_sources:
            return
        longest, caught_up, kv_proposer = [0] * len(self._proposers), 0, self._uncomputed.proposer
        alive = self.requests.ids
        for request_id, draft_plan in step.draft_plans.items():
            is_alive = request_id in alive
            if request_id not in step.in_prompt:
                source = result.sources.get(request_id, self.native)
                taken = draft_plan if len(draft_plan) == 1 else tried(draft_plan, source)
                for i, length in taken:
                    if length > longest[i]:
                        longest[i] = length
                if is_alive:
                    self._waiting[request_id] = draft_plan, source, result.continued.get(request_id)
            else:
                # Of an unfinished prompt, the first proposer computes what there is, if it keeps KV.
                taken = draft_plan[:1]
            if kv_proposer is not None and length_of(taken, kv_proposer):
                caught_up += step.uncomputed.get(request_id, 0)
                if is_alive:
                    self._uncomputed.computed(request_id, requests[request_id].num_tokens)
        if result.counters is not None:
            self._drafting = self._work(result.counters, longest, caught_up)

    def _work(self, counted: CountersByMethod, longest: Sequence[int], caught_up: int) -> tuple[Drafting, ...]:
        drafting = []
        for i, proposer in enumerate(self._proposers):
            did = counted.of(proposer.method)
            tokens = caught_up if i == self._uncomputed.proposer else 0
            drafting.append(Drafting(longest[i], did.draft_tokens, tokens, did.proposer_seconds))
        return tuple(drafting)
