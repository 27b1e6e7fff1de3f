"""Shared by our schedulers, over either of vLLM's: requests that may have drafts, counters and the stream."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vllm_spec_plugin.compat.frontend import carry
from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.compat.scheduler import (
    EngineCoreOutputs,
    ModelRunnerOutput,
    Scheduler,
    SchedulerOutput,
    SchedulerStats,
    disable_placeholder_drafts,
)
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.eligibility import GLOBAL, scope_of
from vllm_spec_plugin.scheduling.step_ledger import Step
from vllm_spec_plugin.scheduling.stream import GroupedStream, SingleTokens

# Between two messages of counters to the frontend, while requests run.
COUNTERS_SECONDS = 0.25
# Number of drafts by their source, draft tokens and accepted ones: there are few different ones in a step.
VerifiedCounts = dict[tuple[int, int, int], int]


class SpecScheduling(Scheduler):
    """Follows requests that may have drafts, counts outcomes of drafts, and groups the stream.

    A subclass connects its policy in its constructor. It may also be a subclass of vLLM's `AsyncScheduler`.

    Attributes:
        counters_seconds: minimum time between two messages of counters to the frontend, while requests run.
    """

    def _connect(self, config: PluginConfig, adapter: DraftLengthAdapter, counters: CountersByMethod) -> None:
        """Connects the policy, once vLLM's scheduler is there."""
        disable_placeholder_drafts(self)
        self._adapter, self._counters = adapter, counters
        self.counters_seconds, self._counters_sent = COUNTERS_SECONDS, 0.0
        self._method, self._methods = config.proposer.method, [proposer.method for proposer in config.proposers]
        self._shared_scope = config.text_scope
        self._acceptance = AcceptanceLog()
        self._stream: GroupedStream | SingleTokens | None = None
        if config.stream_tokens is not None:
            self._stream = GroupedStream(config.stream_tokens)
        elif config.stream_granularity == "token":
            self._stream = SingleTokens()

    def add_request(self, request: Request) -> None:
        """Registers a request; a further turn of a streaming session is not a new one."""
        if request.request_id not in self.requests:
            self._adapter.add(request)
            if self._shared_scope is not None and self._adapter.is_served(request.request_id):
                shares = scope_of(request.cache_salt, self._shared_scope) == GLOBAL
                self._counters.of(self._method).requests_without_salt += shares
        super().add_request(request)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # Others that end have an output still to come, with what was held back.
        request_id = request.request_id
        if self._stream is not None and request.status == RequestStatus.FINISHED_ABORTED:
            self._stream.drop(request_id)
        self._adapter.forget(request_id)
        acceptance = self._acceptance.ended(request_id)
        if acceptance is not None:
            self._counters.of(self._method).ended.append(acceptance)
        return super()._free_request(request, *args, **kwargs)

    def _max_step_tokens(self) -> int:
        """Returns the tokens for which the next step has room, by token budget and free KV blocks."""
        free: int = self.kv_cache_manager.block_pool.get_num_free_blocks() * self.block_size
        return min(int(self.max_num_scheduled_tokens), len(self.running) + free)

    def _end_step(
        self,
        scheduler_output: SchedulerOutput,
        model_runner_output: ModelRunnerOutput,
        nodes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        depths: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[int, EngineCoreOutputs]:
        """Counts the outcome of the earliest step, lets vLLM take it, and reports it to the policy.

        Args:
            scheduler_output: vLLM's plan of the step.
            model_runner_output: its outcome.
            nodes: see `_count_acceptance`.
            depths: see `_count_acceptance`.

        Returns:
            The outputs to the frontend.
        """
        step = self._adapter.take_step()
        num_output = sum(map(len, model_runner_output.sampled_token_ids or ()))
        if num_output and (scheduler_output.scheduled_spec_decode_tokens or self._adapter.pending):
            self._count_acceptance(step, scheduler_output, model_runner_output, nodes, depths)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        is_busy = bool(self.running or self.waiting)
        self._adapter.ended(step, model_runner_output, num_output=num_output, is_busy=is_busy)
        return self._regrouped(outputs)

    def _count_acceptance(
        self,
        step: Step,
        scheduler_output: SchedulerOutput,
        model_runner_output: ModelRunnerOutput,
        nodes: Mapping[str, tuple[int, ...]],
        depths: Mapping[str, int],
    ) -> None:
        """Counts a step's verified drafts, and reports the outcomes of requests with turns to the policy.

        Args:
            step: the step, from `take_step`.
            scheduler_output: vLLM's plan of it.
            model_runner_output: its outcome.
            nodes: by request with a tree with branches, numbers of the accepted nodes in the order sent.
            depths: by request with a tree with branches, its depth.
        """
        drafts, adapter, requests = scheduler_output.scheduled_spec_decode_tokens, self._adapter, self.requests
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        counts: VerifiedCounts = {}
        for request_id in scheduler_output.num_scheduled_tokens if adapter.pending else drafts:
            own = drafts.get(request_id, ())
            if not own and request_id not in adapter.pending:
                continue
            accepted = len(sampled[index[request_id]]) - 1
            if accepted < 0 or not adapter.is_served(request_id):
                continue
            # A grammar's placeholders were never drafts.
            drafted = len(own) - invalid.get(request_id, 0) if invalid else len(own)
            num_output_tokens = requests[request_id].num_output_tokens + accepted + 1
            source = adapter.verified(step, request_id, drafted, accepted, num_output_tokens, nodes.get(request_id))
            if drafted > 0:
                self._acceptance.verified(request_id, drafted, accepted)
                # A tree has one position per level.
                kind = source, min(drafted, depths.get(request_id, drafted)), accepted
                counts[kind] = counts.get(kind, 0) + 1
        self._count_verified(counts)

    def _count_verified(self, counts: VerifiedCounts) -> None:
        """Counts a step's verified drafts."""
        for (source, drafted, accepted), num_drafts in counts.items():
            self._counters.of(self._methods[source]).count_verified(drafted, accepted, num_drafts)

    def _regrouped(self, outputs: dict[int, EngineCoreOutputs]) -> dict[int, EngineCoreOutputs]:
        """Returns a step's outputs to the frontend, with their tokens in groups if these are configured."""
        if self._stream is not None:
            self._stream.regroup(outputs)
        return outputs

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Returns vLLM's statistics of the step, with the plugin's counters at intervals of `counters_seconds`."""
        stats = super().make_stats(*args, **kwargs)
        if stats is None:
            # Without statistics counters must not accumulate.
            self._counters.clear()
        elif self._counters:
            now = time.monotonic()
            if now - self._counters_sent >= self.counters_seconds or not (self.running or self.waiting):
                self._counters_sent = now
                self._adapter.note_estimates()
                carry(stats, self._counters.take_payload())
        return stats
