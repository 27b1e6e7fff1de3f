"""KV blocks for drafts: reserved from free blocks, rolled back when not used, given up where texts need them."""

from collections.abc import Collection, Mapping

from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.compat.scheduler import Scheduler, SchedulerOutput, append_blocks
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.draft_plan import DraftPlan, length_of
from vllm_spec_plugin.messages import TableLengths
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.v1.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.v1.kv.pressure import Demand, keep_drafts


class DraftBlocks:
    """Moves KV blocks between the drafts of a scheduler's requests and the pool.

    It works only on requests that have waiting drafts or a draft plan, or may hold blocks beyond their text.

    Attributes:
        kv_proposer: index of the proposer that keeps KV, whose drafts need slots; None if there is none.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        manager: SpecKVCacheManager,
        adapter: DraftLengthAdapter,
        config: PluginConfig,
        counters: CountersByMethod,
    ) -> None:
        """Connects to a scheduler.

        Args:
            scheduler: scheduler that plans the steps.
            manager: the scheduler's KV cache manager.
            adapter: adapter that plans the drafts.
            config: the plugin's configuration.
            counters: counters to which blocks and dropped drafts are added.
        """
        self._scheduler, self._manager, self._adapter, self._counters = scheduler, manager, adapter, counters
        self.kv_proposer = config.kv_proposer
        self._method, self._methods = config.proposer.method, [proposer.method for proposer in config.proposers]

    def max_step_tokens(self) -> int:
        """Returns the number of tokens for which the next step has room."""
        manager, max_tokens = self._manager, self._scheduler.max_num_scheduled_tokens
        num_running = len(self._scheduler.running)
        return num_running + manager.free_kv_tokens(max_tokens - num_running) if manager.block_sizes else max_tokens

    def make_room(self, drafted: Collection[str], draft_plans: Mapping[str, DraftPlan]) -> dict[str, TableLengths]:
        """Rolls back unused blocks, and drops drafts whose blocks texts need, before a step is planned.

        Call it when the last step's tokens and drafts are known.

        Args:
            drafted: requests with waiting drafts, and possibly others.
            draft_plans: those of the last step, by request id.

        Returns:
            The lengths of shortened tables, by request id. vLLM may preempt some of these requests.
        """
        manager = self._manager
        manager.release_forks()
        tables = self._roll_back() if manager.oversized else {}
        if drafted:
            tables |= self._cut_drafts()
        manager.set_draft_headroom(self._wanted(draft_plans) if drafted or draft_plans else {})
        return tables

    def _roll_back(self) -> dict[str, TableLengths]:
        """Frees blocks beyond text and waiting drafts."""
        manager, requests, tables = self._manager, self._scheduler.requests, {}
        waiting: dict[str, None] = {}
        running = RequestStatus.RUNNING
        before = manager.block_pool.get_num_free_blocks()
        for request_id in manager.oversized:
            request = requests.get(request_id)
            if request is None or request.status != running:
                continue
            table = manager.rollback(request, request.num_tokens_with_spec)
            if table is not None:
                tables[request_id] = table
            if request.spec_token_ids:
                waiting[request_id] = None
        manager.oversized = waiting
        self._count_rolled_back(before)
        return tables

    def _cut_drafts(self) -> dict[str, TableLengths]:
        """Drops drafts whose blocks other requests' texts need.

        Their number depends on lengths and blocks alone, never on tokens, so the output's distribution does not change.
        """
        manager, running = self._manager, self._scheduler.running
        free = manager.block_pool.get_num_free_blocks()
        if self._is_plenty(free):
            return {}
        demands = [
            Demand(
                num_blocks=manager.num_blocks(request.request_id),
                num_tokens=request.num_tokens,
                num_new_tokens=request.num_tokens - request.num_computed_tokens,
                num_drafts=len(request.spec_token_ids),
            )
            for request in running
        ]
        kept = keep_drafts(demands, manager.block_sizes, free, self._scheduler.max_num_scheduled_tokens)
        tables = {}
        for request, num_drafts in zip(running, kept, strict=True):
            num_cut = len(request.spec_token_ids) - num_drafts
            if num_cut:
                request.spec_token_ids = request.spec_token_ids[:num_drafts]
                method = self._methods[self._adapter.source(request.request_id)]
                self._counters.of(method).drafts_cut_for_memory += num_cut
                table = manager.rollback(request, request.num_tokens_with_spec)
                if table is not None:
                    tables[request.request_id] = table
        self._count_rolled_back(free)
        return tables

    def _count_rolled_back(self, num_free_before: int) -> None:
        num_blocks = self._manager.block_pool.get_num_free_blocks() - num_free_before
        if num_blocks:
            self._counters.of(self._method).kv_blocks_rolled_back += num_blocks

    def _is_plenty(self, num_free_blocks: int) -> bool:
        """Whether blocks surely suffice for all running requests of a step; a fast check of the usual case."""
        # Besides full blocks, each request may begin one per group.
        sizes, running = self._manager.block_sizes, self._scheduler.running
        num_requests, max_tokens = len(running), self._scheduler.max_num_scheduled_tokens
        if sum([max_tokens // size + num_requests for size in sizes]) <= num_free_blocks:
            return True
        tokens = sum([request.num_tokens_with_spec - request.num_computed_tokens for request in running])
        return sum([tokens // size + num_requests for size in sizes]) <= num_free_blocks

    def _wanted(self, draft_plans: Mapping[str, DraftPlan]) -> dict[str, int]:
        """Returns the tokens that will need slots, of each running request that this step may draft for."""
        scheduler = self._scheduler
        if self.kv_proposer is None or not (scheduler.waiting or scheduler.kv_holding_waiting):
            return {}
        return {
            request.request_id: self._slots_for_drafting(
                request,
                len(request.spec_token_ids),
                length_of(draft_plans.get(request.request_id, ()), self.kv_proposer),
            )
            for request in scheduler.running
            if request.num_tokens - request.num_computed_tokens <= scheduler.max_num_scheduled_tokens
        }

    def _slots_for_drafting(self, request: Request, num_verified: int, length: int) -> int:
        """Returns the slots that a request needs for `length` draft tokens after a step that verifies `num_verified`.

        Drafting writes KV of all draft tokens but the last; verification in the next step writes one position more.
        """
        longest = min(self._scheduler.max_model_len, request.num_prompt_tokens + request.max_tokens)
        return min(longest, request.num_tokens + num_verified + 1 + length)

    def reserve(self, output: SchedulerOutput, draft_plans: Mapping[str, DraftPlan]) -> None:
        """Reserves slots for the drafts of the planned step, for earlier requests first.

        Slots from vLLM for the step's drafts are rolled back later, too.

        Args:
            output: vLLM's plan of the step; the added blocks are appended to it.
            draft_plans: those of the step, by request id.
        """
        manager, drafts, added = self._manager, output.scheduled_spec_decode_tokens, {}
        if drafts:
            manager.oversized.update(dict.fromkeys(drafts))
        if self.kv_proposer is None:
            return
        for request_id, own in draft_plans.items():
            request, length = self._scheduler.requests[request_id], length_of(own, self.kv_proposer)
            # Not in the middle of a prompt.
            if not length or request.is_prefill_chunk:
                continue
            num_slots = self._slots_for_drafting(request, len(drafts.get(request_id, ())), length)
            if manager.num_missing_blocks(request_id, num_slots):
                block_ids = manager.reserve(request, num_slots).get_block_ids(allow_none=True)
                if block_ids is not None:
                    added[request_id] = block_ids
        if not added:
            return
        num_blocks = sum(len(ids) for block_ids in added.values() for ids in block_ids)
        self._counters.of(self._method).kv_blocks_reserved += num_blocks
        append_blocks(self._scheduler, output, added)
