"""KV blocks for drafts: reserved from what is free, taken back when not used, and given up where texts need them."""

from collections.abc import Collection, Mapping
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.compat.scheduler import Scheduler, append_blocks
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.kv.pressure import Demand, keep_drafts
from vllm_spec_plugin.messages import TableLengths
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.turns import Turns, length_of


class DraftBlocks:
    """Moves KV blocks between the drafts of a scheduler's requests and the pool.

    Work is done only for requests that have waiting drafts or turns, or that may hold blocks beyond their text.

    Attributes:
        kv_proposer: index of the proposer that writes KV of its own, so that the tokens it drafts in a step need
            slots; None if there is none.
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
            scheduler: plans the steps.
            manager: the scheduler's.
            adapter: plans the drafts.
            config: the plugin's.
            counters: blocks and dropped drafts are added to these.
        """
        self._scheduler, self._manager, self._adapter, self._counters = scheduler, manager, adapter, counters
        self.kv_proposer = config.kv_proposer
        self._method, self._methods = config.proposer.method, [proposer.method for proposer in config.proposers]

    def most_tokens(self) -> int:
        """How many tokens the next step has room for."""
        manager, most = self._manager, self._scheduler.max_num_scheduled_tokens
        num_running = len(self._scheduler.running)
        return num_running + manager.free_kv_tokens(most - num_running) if manager.block_sizes else most

    def make_room(self, drafted: Collection[str]) -> dict[str, TableLengths]:
        """Takes back what the last step's drafts left unused, and what texts need, before a step is planned.

        The last step's tokens and drafts are known by then.

        Args:
            drafted: requests with drafts that wait to be verified, and maybe others.

        Returns:
            The lengths of the tables that got shorter, by request id. vLLM may preempt some of these requests.
        """
        manager = self._manager
        manager.release_forks()
        tables = self._roll_back() if manager.oversized else {}
        if drafted:
            tables |= self._cut_drafts()
        manager.set_draft_headroom(self._wanted() if drafted or self._adapter.latest else {})
        return tables

    def _roll_back(self) -> dict[str, TableLengths]:
        """Frees what is held beyond text and waiting drafts."""
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

        How many are dropped depends on lengths and blocks alone, never on the tokens: the output's
        distribution stays.
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
        """Whether there are blocks for all that running requests ask of a step: the usual case, told quickly."""
        # Besides full blocks, each request may begin one per group.
        sizes, running = self._manager.block_sizes, self._scheduler.running
        num_requests, most = len(running), self._scheduler.max_num_scheduled_tokens
        if sum([most // size + num_requests for size in sizes]) <= num_free_blocks:
            return True
        tokens = sum([request.num_tokens_with_spec - request.num_computed_tokens for request in running])
        return sum([tokens // size + num_requests for size in sizes]) <= num_free_blocks

    def _wanted(self) -> dict[str, int]:
        """Per running request that this step may draft for, the tokens whose slots it will need."""
        scheduler, turns = self._scheduler, self._adapter.latest
        if self.kv_proposer is None or not (scheduler.waiting or scheduler.kv_holding_waiting):
            return {}
        return {
            request.request_id: self._slots_for_drafting(
                request, len(request.spec_token_ids), length_of(turns.get(request.request_id, ()), self.kv_proposer)
            )
            for request in scheduler.running
            if request.num_tokens - request.num_computed_tokens <= scheduler.max_num_scheduled_tokens
        }

    def _slots_for_drafting(self, request: Request, num_verified: int, length: int) -> int:
        """How far a request's slots must reach for `length` drafts after a step that verifies `num_verified`.

        Drafting writes KV up to the last but one draft, verifying all of them in the next step one
        position further.
        """
        longest = min(self._scheduler.max_model_len, request.num_prompt_tokens + request.max_tokens)
        return min(longest, request.num_tokens + num_verified + 1 + length)

    def reserve(self, output: Any, turns: Mapping[str, Turns]) -> None:
        """Gives the requests that will be drafted for in the planned step slots for it, earlier ones first.

        Slots that vLLM gave to the drafts of the step are taken back later, too.

        Args:
            output: vLLM's plan of the step; the added blocks are appended to it.
            turns: the step's, by request id.
        """
        manager, drafts, added = self._manager, output.scheduled_spec_decode_tokens, {}
        if drafts:
            manager.oversized.update(dict.fromkeys(drafts))
        if self.kv_proposer is None:
            return
        for request_id, own in turns.items():
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
