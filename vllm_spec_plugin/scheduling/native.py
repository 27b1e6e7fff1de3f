"""vLLM's schedulers with draft lengths for vLLM's own drafters, synchronous and asynchronous, on both runners.

The scheduler alone decides: how many placeholders of a request's drafts are verified, and how long the drafter drafts
after a step. Runner, drafter and sampler are vLLM's; on V2 the drafter may be heads of the plugin's.
"""

import logging
from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.native import AsyncScheduler, can_shorten, holds_min_tokens_too_long, samples_drafts
from vllm_spec_plugin.compat.resting import DrafterAfterRest, after_rest
from vllm_spec_plugin.compat.scheduler import (
    DraftTokenIds,
    EngineCoreOutputs,
    ModelRunnerOutput,
    SchedulerOutput,
    VllmConfig,
)
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import result_of
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.scheduling.base import SpecScheduling, VerifiedCounts
from vllm_spec_plugin.scheduling.native_adapter import NativeAdapter
from vllm_spec_plugin.scheduling.resting import DrafterRest
from vllm_spec_plugin.scheduling.step_ledger import Step
from vllm_spec_plugin.turns import Turns, length_of

logger = logging.getLogger("vllm.vllm_spec_plugin")


class NativeScheduler(SpecScheduling):
    """Chooses each request's draft length in each step, 0 included."""

    is_async = False

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        config, counters = config_in(vllm_config.additional_config), CountersByMethod()
        control = create_control(config, self.max_num_scheduled_tokens, True)
        after = after_rest(vllm_config)
        self._adapter: NativeAdapter
        adapter = NativeAdapter(
            control,
            config,
            self.max_model_len,
            counters,
            is_async=self.is_async,
            bounds_min_tokens=holds_min_tokens_too_long(vllm_config),
            samples_drafts=samples_drafts(vllm_config),
            after_rest=after if isinstance(after, DrafterAfterRest) else None,
        )
        self._connect(config, adapter, counters)
        self._can_shorten = can_shorten(vllm_config)
        self._rest: DrafterRest | None = None
        if isinstance(after, DrafterAfterRest):
            self._rest = DrafterRest(self, after)
            logger.info("vLLM's drafter rests in steps after which nobody drafts; then it %s", after.value)
        else:
            logger.warning("vLLM's drafter runs in every step, also where nobody drafts: %s", after)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Plans a step; its draft lengths are chosen in `_update_after_schedule`."""
        self._begin()
        output = super().schedule(*args, **kwargs)
        if len(output.num_scheduled_tokens) < len(self.running):
            self._drop_drafts_of_others(output)
        return output

    def _drop_drafts_of_others(self, output: SchedulerOutput) -> None:
        """Drops drafts of running requests that a step has no room for: V1 keeps their q for one step only."""
        for request in self.running:
            if request.request_id not in output.num_scheduled_tokens:
                request.spec_token_ids = []

    def _begin(self) -> None:
        """Begins a step, whose planning starts."""
        self._adapter.started()

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        if self._rest is not None:
            found_stale = self._rest.planned(scheduler_output, self._adapter.may_draft_soon)
            self._native_counters.stale_requests += found_stale
        self._adapter.plan(scheduler_output, self.running, self._max_step_tokens)
        if self._rest is not None and scheduler_output.num_scheduled_tokens:
            if self._adapter.rests:
                self._native_counters.stale_requests += self._rest.rest(scheduler_output)
                self._native_counters.drafter_rests += 1
                return
            caught_up, unready = self._rest.catch_up(scheduler_output, self._adapter.is_served)
            self._native_counters.caught_up_tokens += caught_up
            self._adapter.catches_up(caught_up, unready)
        if self._can_shorten:
            scheduler_output.num_spec_tokens_to_schedule = self._adapter.longest

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Takes the drafts of a step, each request's up to its draft length and to the end of its output."""
        turns, requests, drafts = self._adapter.latest, self.requests, []
        for request_id, own in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True):
            length, request = self._length(turns, request_id), requests.get(request_id)
            if request is None or request.is_prefill_chunk:
                length = 0
            elif length:
                # Verification adds a token after the drafts.
                length = max(min(length, request.max_tokens - request.num_output_tokens - 1), 0)
            drafts.append(own[:length])
        self._count_drafts([len(own) for own in drafts])
        super().update_draft_token_ids(DraftTokenIds(draft_token_ids.req_ids, drafts))

    def _count_drafts(self, lengths: Sequence[int]) -> None:
        """Counts the drafter's drafts of a step, by their lengths; the worker counts its time."""
        self._native_counters.count_drafts(lengths, 0.0)

    @property
    def _native_counters(self) -> StepCounters:
        """The drafter's counters."""
        return self._counters.of(self._methods[self._adapter.native])

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Updates requests, estimates and counters from a step's outcome."""
        step, result = self._adapter.take_step(), result_of(model_runner_output)
        if result.counters is not None:
            self._counters.add(result.counters)
        drafts = scheduler_output.scheduled_spec_decode_tokens
        sampled = model_runner_output.sampled_token_ids
        num_output = sum(map(len, sampled)) if sampled else 0
        if num_output and (drafts or step.asked):
            self._count_outcomes(step, scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._adapter.finished(step, num_output)
        self._native_counters.drafter_passes += step.drafter_passes
        return self._regrouped(outputs)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if self._rest is not None:
            self._rest.forget(request.request_id)
        return super()._free_request(request, *args, **kwargs)

    def _count_outcomes(
        self, step: Step, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        drafts, invalid = scheduler_output.scheduled_spec_decode_tokens, scheduler_output.num_invalid_spec_tokens or {}
        sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        counts: VerifiedCounts = {}
        for request_id in step.asked.keys() | drafts.keys():
            row, request = index.get(request_id), self.requests.get(request_id)
            if row is None or request is None or not sampled[row] or not self._adapter.is_served(request_id):
                continue
            accepted = len(sampled[row]) - 1
            # A grammar's placeholders were never drafts.
            drafted = len(drafts.get(request_id, ())) - invalid.get(request_id, 0)
            num_output_tokens = request.num_output_tokens + accepted + 1
            source = self._adapter.outcome(step, request_id, drafted, accepted, num_output_tokens)
            if drafted > 0:
                self._acceptance.verified(request_id, drafted, accepted)
                counts[source, drafted, accepted] = counts.get((source, drafted, accepted), 0) + 1
        self._count_verified(counts)

    def _length(self, turns: dict[str, Turns], request_id: str) -> int:
        """Returns the drafter's draft length for a request."""
        return length_of(turns.get(request_id, ()), self._adapter.native)


class NativeAsyncScheduler(NativeScheduler, AsyncScheduler):
    """The same where steps are planned before the last outcome is known: drafts stay on the device."""

    is_async = True

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # vLLM shares such lists between requests and does not change them.
        self._placeholders = [[-1] * length for length in range(self.num_spec_tokens + 1)]

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        turns, lengths = self._adapter.latest, []
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests[request_id]
            if not request.is_prefill_chunk:
                length = self._length(turns, request_id)
                request.spec_token_ids = self._placeholders[length]
                lengths.append(length)
        self._count_drafts(lengths)
