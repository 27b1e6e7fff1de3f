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
from vllm_spec_plugin.scheduling.base import SpecScheduling
from vllm_spec_plugin.scheduling.eligibility import scope_of
from vllm_spec_plugin.v1.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.v1.kv.tree_forks import TreeForks
from vllm_spec_plugin.v1.scheduling.draft_blocks import DraftBlocks
from vllm_spec_plugin.v1.scheduling.prompt_priority import PromptPriority

logger = logging.getLogger("vllm.vllm_spec_plugin")


class SpecScheduler(SpecScheduling):
    """Plans draft lengths, reserves free KV blocks for drafts, and sends the workers' counters to the frontend.

    Token-only proposers draft here, others in the workers. In a step without drafts it works like vLLM's: work per
    request is done only for requests that have drafts or a draft plan, or hold blocks of earlier drafts.

    With a KV connector block tables are vLLM's, as connectors keep their own copies, which only grow.
    """

    kv_cache_manager: SpecKVCacheManager

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        config = config_in(vllm_config.additional_config)
        uses_head = any(proposer.uses_aux_states for proposer in config.proposers)
        with kv_cache_manager_in_place(SpecKVCacheManager, drops_last_hit=uses_head):
            super().__init__(vllm_config, *args, **kwargs)
        self._connect(config, config.proposers if config.is_token_only else ())
        control = self._adapter.control
        self._blocks = DraftBlocks(self, self.kv_cache_manager, self._adapter, config, self._counters)
        self._forks = TreeForks(self.kv_cache_manager)
        self._prompts = None if control.is_constant else PromptPriority(self, self.kv_cache_manager, control)
        # Requests with drafts that wait to be verified, and maybe others.
        self._drafted: set[str] = set()
        self._manages_kv = self.connector is None
        if not self._manages_kv:
            logger.warning("KV connector in use: blocks of rejected drafts are not freed")

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Plans a step: makes room for texts, lets vLLM plan it, chooses draft lengths, and reserves free blocks."""
        begun = self._adapter.now()
        self._drafted.update(self._draft_token_only())
        if self._drafted and self._prompts is not None and (self.waiting or self._inflight_prefills):
            self._prompts.cut_drafts()
        rollback = self._blocks.make_room(self._drafted, self._adapter.latest.draft_plans) if self._manages_kv else {}
        output = super().schedule(*args, **kwargs)
        if self._drafted:
            self._drafted.difference_update(output.num_scheduled_tokens)
        draft_plans = self._adapter.plan(output, self.running, self._blocks.max_step_tokens, begun).draft_plans
        forks: dict[str, Forks] = {}
        if self._manages_kv:
            self._blocks.reserve(output, draft_plans)
            forks = self._forks.give(output, self.running)
        scopes: dict[str, str | None] = {}
        if self._token_only is not None:
            draft_plans = {}
        elif self._shared_scope and output.scheduled_new_reqs:
            scopes = self._scopes_of_new(output)
        if rollback:
            rollback = self._of_running(rollback)
        if draft_plans or scopes or rollback or forks:
            send(output, StepPlan(draft_plans, scopes, rollback, forks))
        return output

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
        """See `SpecScheduling`; also tells the policy of the steps that were timed at start-up."""
        if probe := result_of(model_runner_output).probe:
            self._adapter.control.probed(probe)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _tree_depths(self) -> dict[str, int]:
        return {name: depth for name, (_, depth) in self._forks.verifying.items()}

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Takes the drafts of a step, without vLLM's work on requests without drafts.

        Requests that ended in the step, or were aborted while it ran, were drafted for as well.
        """
        result = drafts_of(draft_token_ids)
        if result.counters is not None:
            self._counters.add(result.counters)
        for request_id, shape in result.trees.items():
            if request_id in self._adapter.requests.ids:
                self._forks.add(request_id, shape)
        self._adapter.drafted(self.requests, result)
        pairs = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True)
        drafts = {request_id: token_ids for request_id, token_ids in pairs if token_ids}
        if drafts:
            super().update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))
            self._drafted.update(drafts.keys() & self._adapter.requests.ids)

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
