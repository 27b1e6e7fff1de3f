"""Shared by our schedulers, over either of vLLM's: requests that may have drafts, counters and the stream."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.compat.frontend import carry
from vllm_spec_plugin.compat.grammars import Grammars
from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.compat.scheduler import (
    DraftTokenIds,
    EngineCoreOutputs,
    ModelRunnerOutput,
    Scheduler,
    SchedulerOutput,
    SchedulerStats,
    disable_placeholder_drafts,
)
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.messages import result_of
from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.scheduling.adapter import DrafterTraits, DraftLengthAdapter
from vllm_spec_plugin.scheduling.eligibility import GLOBAL, scope_of
from vllm_spec_plugin.scheduling.memory_file import memory_of
from vllm_spec_plugin.scheduling.operator_switch import OperatorSwitch
from vllm_spec_plugin.scheduling.steps import Step
from vllm_spec_plugin.scheduling.stream import GroupedStream, SingleTokens
from vllm_spec_plugin.scheduling.token_only_drafts import TokenOnlyDrafts

# Between two messages of counters to the frontend, while requests run.
COUNTERS_SECONDS = 0.25


class SpecScheduling(Scheduler):
    """Follows requests that may have drafts, drafts from their texts, counts outcomes of drafts, groups the stream.

    A subclass connects its policy in its constructor. It may also be a subclass of vLLM's `AsyncScheduler`.

    Attributes:
        counters_seconds: minimum time between two messages of counters to the frontend, while requests run.
    """

    def _connect(
        self,
        config: PluginConfig,
        token_only: Sequence[ProposerConfig],
        drafter: DrafterTraits | None = None,
    ) -> None:
        """Creates the policy and connects it and the proposers, once vLLM's scheduler is there.

        Args:
            config: the plugin's configuration.
            token_only: the first proposers of the configuration, which draft here.
            drafter: see `DraftLengthAdapter`.
        """
        disable_placeholder_drafts(self)
        self._memory = memory_of(self.vllm_config, config)
        learned = None if self._memory is None else self._memory.read()
        control = create_control(config, self.max_num_scheduled_tokens, drafter is not None, learned)
        self._counters = CountersByMethod()
        settings: Any = self.vllm_config.additional_config
        switch = OperatorSwitch(config, settings[KEY]["source"])
        self._adapter = DraftLengthAdapter(control, config, self.max_model_len, self._counters, drafter, switch)
        vocab_size = self.vllm_config.model_config.get_vocab_size()
        self._token_only: TokenOnlyDrafts | None = None
        if token_only:
            grammars = Grammars(self.structured_output_manager)
            self._token_only = TokenOnlyDrafts(token_only, config, vocab_size, grammars)
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
            if self._shared_scope is not None and request.request_id in self._adapter.requests.ids:
                shares = scope_of(request.cache_salt, self._shared_scope) == GLOBAL
                self._counters.of(self._method).requests_without_salt += shares
        super().add_request(request)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # Others that end have an output still to come, with what was held back.
        request_id = request.request_id
        if self._stream is not None and request.status == RequestStatus.FINISHED_ABORTED:
            self._stream.drop(request_id)
        self._adapter.forget(request_id)
        if self._token_only is not None:
            self._token_only.finish(request_id)
        acceptance = self._acceptance.ended(request_id)
        if acceptance is not None:
            self._counters.of(self._method).ended.append(acceptance)
        return super()._free_request(request, *args, **kwargs)

    def _max_step_tokens(self) -> int:
        """Returns the tokens for which the next step has room, by token budget and free KV blocks."""
        free: int = self.kv_cache_manager.block_pool.get_num_free_blocks() * self.block_size
        return min(int(self.max_num_scheduled_tokens), len(self.running) + free)

    def _draft_token_only(self) -> Collection[str]:
        """Drafts for requests of the step that ended last, before the next one is planned.

        Such a draft takes the place of a drafter's, which was made before the step's tokens were known here.

        Returns:
            The requests with such a draft.
        """
        if self._token_only is None or not (draft_plans := self._adapter.latest_ended.draft_plans):
            return ()
        adapter = self._adapter
        found, result = self._token_only.draft(draft_plans, self.requests, adapter.requests.room, adapter.control)
        assert result.counters is not None
        self._counters.add(result.counters)
        self._adapter.drafted(self.requests, result)
        if found:
            super().update_draft_token_ids(DraftTokenIds(list(found), list(found.values())))
        return found

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Counts the outcome of the earliest step, lets vLLM take it, and reports it to the policy."""
        step, result = self._adapter.take_step(), result_of(model_runner_output)
        if result.counters is not None:
            self._counters.add(result.counters)
        num_output = sum(map(len, model_runner_output.sampled_token_ids or ()))
        if num_output and (scheduler_output.scheduled_spec_decode_tokens or step.drafted_as):
            self._count_outcomes(step, scheduler_output, model_runner_output, result.accepted_nodes)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._adapter.ended(step, num_output, is_busy=bool(self.running or self.waiting))
        if self._stream is not None:
            self._stream.regroup(outputs)
        return outputs

    def _count_outcomes(
        self,
        step: Step,
        scheduler_output: SchedulerOutput,
        model_runner_output: ModelRunnerOutput,
        nodes: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Counts a step's verified drafts, and reports the outcomes of requests with a draft plan to the policy.

        Args:
            step: the step.
            scheduler_output: vLLM's plan of it.
            model_runner_output: its outcome.
            nodes: by request with a tree with branches, numbers of the accepted nodes in the order sent.
        """
        drafts, invalid = scheduler_output.scheduled_spec_decode_tokens, scheduler_output.num_invalid_spec_tokens or {}
        sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        # Number of drafts by their source, draft tokens and accepted ones: there are few different ones in a step.
        counts: dict[tuple[int, int, int], int] = {}
        served, depths, token_only = self._adapter.requests.ids, self._tree_depths(), self._token_only
        for request_id in (*drafts, *[name for name in step.drafted_as if name not in drafts]):
            row = index.get(request_id)
            if row is None or not sampled[row] or request_id not in served:
                continue
            accepted = len(sampled[row]) - 1
            # A grammar's placeholders were never drafts.
            drafted = len(drafts.get(request_id, ())) - invalid.get(request_id, 0)
            parts = self._adapter.verified(step, request_id, drafted, accepted, nodes.get(request_id))
            if drafted > 0:
                self._acceptance.verified(request_id, drafted, accepted)
                for source, of_source, accepted_of_source in parts:
                    # A tree has one position per level.
                    kind = source, min(of_source, depths.get(request_id, of_source)), accepted_of_source
                    if of_source:
                        counts[kind] = counts.get(kind, 0) + 1
                    if token_only is not None and source == token_only.grammar:
                        kinds = token_only.verified(request_id, of_source, accepted_of_source)
                        self._counters.of(self._methods[source]).count_kinds(kinds, accepted_of_source)
        for (source, drafted, accepted), num_drafts in counts.items():
            self._counters.of(self._methods[source]).count_verified(drafted, accepted, num_drafts)

    def _tree_depths(self) -> Mapping[str, int]:
        """Returns by request with a tree with branches that the latest step verified, its depth."""
        return {}

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Returns vLLM's statistics of the step, with the plugin's counters at intervals of `counters_seconds`."""
        stats = super().make_stats(*args, **kwargs)
        is_busy = bool(self.running or self.waiting)
        if self._memory is not None and self._memory.is_due(is_busy=is_busy):
            self._memory.write(self._adapter.control.learned())
        if stats is None:
            # Without statistics counters must not accumulate.
            self._counters.clear()
        elif self._counters:
            now = time.monotonic()
            if now - self._counters_sent >= self.counters_seconds or not is_busy:
                self._counters_sent = now
                self._adapter.note_estimates()
                carry(stats, self._counters.take_payload())
        return stats
