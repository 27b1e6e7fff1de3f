"""vLLM's scheduler for the plugin's own proposers: draft lengths, KV blocks for drafts, and outcomes of drafts."""

import logging
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request, kv_cache_manager_in_place
from vllm_spec_plugin.compat.scheduler import (
    DraftTokenIds,
    EngineCoreOutputs,
    ModelRunnerOutput,
    SchedulerOutput,
    VllmConfig,
)
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import Forks, StepPlan, TableLengths, drafts_of, result_of, send
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.base import SpecScheduling
from vllm_spec_plugin.scheduling.eligibility import scope_of
from vllm_spec_plugin.v1.kv.manager import ConnectedKVCacheManager, SpecKVCacheManager
from vllm_spec_plugin.v1.kv.tree_forks import TreeForks
from vllm_spec_plugin.v1.scheduling.draft_blocks import DraftBlocks
from vllm_spec_plugin.v1.scheduling.prompt_priority import PromptPriority

logger = logging.getLogger("vllm.vllm_spec_plugin")


class SpecScheduler(SpecScheduling):
    """Plans draft lengths, reserves free KV blocks for drafts, and sends the workers' counters to the frontend.

    In a step without drafts it works like vLLM's: work per request is done only for requests that have drafts or turns,
    or hold blocks of earlier drafts.

    With a KV connector block tables are vLLM's, as connectors keep their own copies, which only grow: slots for drafts
    are vLLM's lookahead.
    """

    kv_cache_manager: SpecKVCacheManager

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        config = config_in(vllm_config.additional_config)
        uses_head = any(proposer.uses_aux_states for proposer in config.proposers)
        manager = SpecKVCacheManager if vllm_config.kv_transfer_config is None else ConnectedKVCacheManager
        with kv_cache_manager_in_place(manager, drops_last_hit=uses_head):
            super().__init__(vllm_config, *args, **kwargs)
        counters = CountersByMethod()
        control = create_control(config, self.max_num_scheduled_tokens)
        self._connect(config, DraftLengthAdapter(control, config, self.max_model_len, counters), counters)
        self._blocks = DraftBlocks(self, self.kv_cache_manager, self._adapter, config, self._counters)
        self._forks = TreeForks(self.kv_cache_manager)
        self._prompts = None if control.is_constant else PromptPriority(self, self.kv_cache_manager, control)
        # Requests with drafts that wait to be verified, and maybe others.
        self._drafted: set[str] = set()
        self._manages_kv = self.connector is None
        if not self._manages_kv:
            logger.warning("KV connector in use: draft-block reservation and rollback are disabled")
            if config.kv_proposer is not None:
                self.num_lookahead_tokens = 1 + config.draft_length.tokens

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Plans a step: makes room for texts, lets vLLM plan it, chooses draft lengths, and reserves free blocks."""
        self._adapter.started()
        if self._drafted and self._prompts is not None and (self.waiting or self._inflight_prefills):
            self._prompts.cut_drafts()
        rollback = self._blocks.make_room(self._drafted, self._adapter.ledger.before.turns) if self._manages_kv else {}
        output = super().schedule(*args, **kwargs)
        if self._drafted:
            self._drafted.difference_update(output.num_scheduled_tokens)
        loaded = self._loaded(output)
        self._adapter.admitted(output, loaded)
        turns = self._adapter.plan(output, self.running, self._blocks.max_step_tokens)
        forks: dict[str, Forks] = {}
        if self._manages_kv:
            self._blocks.reserve(output, turns)
            forks = self._forks.give(output, self.running)
        scopes = self._scopes_of_new(output) if self._shared_scope and output.scheduled_new_reqs else {}
        if rollback:
            rollback = self._of_running(rollback)
        if turns or scopes or rollback or forks or loaded:
            send(output, StepPlan(turns, scopes, rollback, forks, loaded))
        return output

    def _loaded(self, output: SchedulerOutput) -> dict[str, int]:
        """See `StepPlan`."""
        manager = self.kv_cache_manager
        if not isinstance(manager, ConnectedKVCacheManager) or not manager.loaded:
            return {}
        new = [new.req_id for new in output.scheduled_new_reqs]
        return manager.take_loaded([*new, *output.scheduled_cached_reqs.resumed_req_ids])

    def _of_running(self, tables: dict[str, TableLengths]) -> dict[str, TableLengths]:
        """Leaves out preempted requests, whose tables are sent whole when they resume."""
        running = {request.request_id for request in self.running}
        return {request_id: lengths for request_id, lengths in tables.items() if request_id in running}

    def _scopes_of_new(self, output: SchedulerOutput) -> dict[str, str | None]:
        """Scopes of requests whose first step is planned."""
        assert self._shared_scope is not None
        requests = [self.requests[new.req_id] for new in output.scheduled_new_reqs]
        return {request.request_id: scope_of(request.cache_salt, self._shared_scope) for request in requests}

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Updates requests, estimates and counters from a step's outcome."""
        result = result_of(model_runner_output)
        if result.counters is not None:
            self._counters.add(result.counters)
        if result.probe:
            self._adapter.control.probed(result.probe)
        depths = {name: depth for name, (_, depth) in self._forks.verifying.items()}
        return self._end_step(scheduler_output, model_runner_output, result.accepted_nodes, depths)

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Takes the drafts of a step, without vLLM's work on requests without drafts.

        Requests that ended in the step, or were aborted while it ran, were drafted for as well.
        """
        result = drafts_of(draft_token_ids)
        if result.counters is not None:
            self._counters.add(result.counters)
        for request_id, shape in result.trees.items():
            if self._adapter.is_served(request_id):
                self._forks.add(request_id, shape)
        self._adapter.drafted(self.requests, result)
        pairs = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True)
        drafts = {request_id: token_ids for request_id, token_ids in pairs if token_ids}
        if drafts:
            super().update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))
            self._drafted.update(filter(self._adapter.is_served, drafts))

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._forks.forget(request.request_id)
        self._drafted.discard(request.request_id)
        return super()._free_request(request, *args, **kwargs)

    def check_integrity(self) -> None:
        """Checks the bookkeeping of KV blocks, between steps.

        Raises:
            KVIntegrityError: the bookkeeping is inconsistent.
        """
        self.kv_cache_manager.check_integrity(block for _, blocks in self.deferred_frees for block in blocks)
