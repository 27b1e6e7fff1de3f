"""KV blocks for drafts: reserved from what is free, taken back when not used, and given up where texts need them."""

from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus, kv_cache_manager_in_place
from vllm_spec_plugin.compat.scheduler import KV_FORKS, Scheduler, append_blocks, disable_placeholder_drafts
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.kv import SpecKVCacheManager
from vllm_spec_plugin.scheduling.pressure import Demand, keep_drafts
from vllm_spec_plugin.settings import config_in
from vllm_spec_plugin.turns import Turns, length_of


class DraftBlocks(Scheduler):
    """The part of the scheduler that moves KV blocks between drafts and the pool.

    Work is done only for requests that drafts wait of, that have turns, or that may hold blocks beyond their text.

    Attributes:
        kv_proposer: index of the proposer that writes KV of its own, so that the tokens it drafts in a step need
            slots; None if there is none.
        config: the plugin's.
    """

    kv_cache_manager: SpecKVCacheManager
    # Plans the drafts; set by the subclass.
    _adapter: DraftLengthAdapter

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with kv_cache_manager_in_place(SpecKVCacheManager):
            super().__init__(*args, **kwargs)
        disable_placeholder_drafts(self)
        self.config = config = config_in(self.vllm_config.additional_config)
        self.kv_proposer = config.kv_proposer
        # By the tokens of a draft: branches that a draft model follows, each with keys and values of its own, and how
        # far. Empty where it follows none.
        self._drafting: tuple[tuple[int, int], ...] = ()
        for proposer in config.proposers:
            if shapes := proposer.branch_shapes:
                self._drafting = tuple([(max(num_chains - 1, 0), depth) for num_chains, depth in shapes])
        # Of the trees that wait, and of those in the planned step: forks that verifying them takes, and depth.
        self._trees: dict[str, tuple[int, int]] = {}
        self._verifying: dict[str, tuple[int, int]] = {}
        # Requests with drafts that wait to be verified, and maybe others.
        self._drafted: set[str] = set()
        self._method, self._methods = config.proposer.method, [proposer.method for proposer in config.proposers]
        self._counters = CountersByMethod()
        for method in (self._method, *self._methods):
            # Shown from zero.
            self._counters.of(method)

    def _most_tokens(self) -> int:
        """How many tokens the next step has room for."""
        manager, most, num_running = self.kv_cache_manager, self.max_num_scheduled_tokens, len(self.running)
        return num_running + manager.free_kv_tokens(most - num_running) if manager.block_sizes else most

    def _roll_back(self) -> dict[str, tuple[int | None, ...]]:
        """Frees what is held beyond text and waiting drafts; gives the lengths of the tables that got shorter.

        Called before a step is planned, when the last one's tokens and drafts are known.
        """
        manager, tables = self.kv_cache_manager, {}
        waiting: dict[str, None] = {}
        running = RequestStatus.RUNNING
        before = manager.block_pool.get_num_free_blocks()
        for request_id in manager.oversized:
            request = self.requests.get(request_id)
            if request is None or request.status != running:
                continue
            table = manager.rollback(request, request.num_tokens_with_spec)
            if table is not None:
                tables[request_id] = table
            if request.spec_token_ids:
                waiting[request_id] = None
        manager.oversized = waiting
        num_blocks = manager.block_pool.get_num_free_blocks() - before
        if num_blocks:
            self._counters.of(self._method).kv_blocks_rolled_back += num_blocks
        return tables

    def _cut_drafts(self) -> dict[str, tuple[int | None, ...]]:
        """Drops drafts whose blocks other requests' texts need; gives the lengths of the tables that got shorter.

        How many are dropped depends on lengths and blocks alone, never on the tokens: the output's
        distribution stays.
        """
        manager = self.kv_cache_manager
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
            for request in self.running
        ]
        kept = keep_drafts(demands, manager.block_sizes, free, self.max_num_scheduled_tokens)
        tables = {}
        for request, num_drafts in zip(self.running, kept, strict=True):
            num_cut = len(request.spec_token_ids) - num_drafts
            if num_cut:
                request.spec_token_ids = request.spec_token_ids[:num_drafts]
                method = self._methods[self._adapter.source(request.request_id)]
                self._counters.of(method).drafts_cut_for_memory += num_cut
                table = manager.rollback(request, request.num_tokens_with_spec)
                if table is not None:
                    tables[request.request_id] = table
        num_blocks = manager.block_pool.get_num_free_blocks() - free
        if num_blocks:
            self._counters.of(self._method).kv_blocks_rolled_back += num_blocks
        return tables

    def _is_plenty(self, num_free_blocks: int) -> bool:
        """Whether there are blocks for all that running requests ask of a step: the usual case, told quickly."""
        # Besides full blocks, each request may begin one per group.
        sizes, num_requests = self.kv_cache_manager.block_sizes, len(self.running)
        if sum([self.max_num_scheduled_tokens // size + num_requests for size in sizes]) <= num_free_blocks:
            return True
        tokens = sum([request.num_tokens_with_spec - request.num_computed_tokens for request in self.running])
        return sum([tokens // size + num_requests for size in sizes]) <= num_free_blocks

    def _wanted(self) -> dict[str, int]:
        """Per running request that this step may draft for, the tokens whose slots it will need."""
        if self.kv_proposer is None or not (self.waiting or self.kv_holding_waiting):
            return {}
        turns = self._adapter.latest
        if not (turns or self._drafted):
            return {}
        return {
            request.request_id: self._slots_for_drafting(
                request, len(request.spec_token_ids), length_of(turns.get(request.request_id, ()), self.kv_proposer)
            )
            for request in self.running
            if request.num_tokens - request.num_computed_tokens <= self.max_num_scheduled_tokens
        }

    def _slots_for_drafting(self, request: Request, num_verified: int, length: int) -> int:
        """How far a request's slots must reach for `length` drafts after a step that verifies `num_verified`.

        Drafting writes KV up to the last but one draft, verifying all of them in the next step one
        position further.
        """
        longest = min(self.max_model_len, request.num_prompt_tokens + request.max_tokens)
        return min(longest, request.num_tokens + num_verified + 1 + length)

    def _reserve(self, output: Any, turns: dict[str, Turns]) -> None:
        """Gives the requests that will be drafted for in the planned step slots for it, earlier ones first."""
        if self.kv_proposer is None:
            return
        manager, drafts, added = self.kv_cache_manager, output.scheduled_spec_decode_tokens, {}
        for request_id, own in turns.items():
            request, length = self.requests[request_id], length_of(own, self.kv_proposer)
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
        append_blocks(output, added)
        # The next step would be too late: by then they hold drafts' KV.
        if to_zero := self._get_new_block_ids_to_zero():
            output.new_block_ids_to_zero = [*(output.new_block_ids_to_zero or ()), *to_zero]

    def _fork(self, output: Any, turns: dict[str, Turns]) -> None:
        """Gives requests that verify a tree in the planned step, or draft one, blocks for its branches.

        Earlier requests come first. What is missing costs branches: the workers leave out a tree's last ones,
        whatever their tokens are.
        """
        drafts, scheduled = output.scheduled_spec_decode_tokens, output.num_scheduled_tokens
        self._verifying = {}
        for request_id in [request_id for request_id in self._trees if request_id in scheduled]:
            # A request whose drafts were all cut has none to verify, and its tree is no more.
            tree = self._trees.pop(request_id)
            if request_id in drafts:
                self._verifying[request_id] = tree
        if not (self._verifying or (self._drafting and turns)):
            return
        forks: dict[str, tuple[list[int], int]] = {}
        for request in self.running:
            request_id = request.request_id
            if request_id not in scheduled or request.is_prefill_chunk:
                continue
            # vLLM counts the step's tokens as computed already, drafts too.
            length = request.num_computed_tokens - len(drafts.get(request_id, ()))
            num_forks, depth = self._verifying.get(request_id, (0, 0))
            size = self._fork_size(length, length + depth - 1) if num_forks else 0
            num_branches, reach = self._branches_to_draft(turns.get(request_id, ()))
            if num_branches:
                # Where the text will end is not known yet. The last draft of a branch is not fed to the proposer.
                num_forks = max(num_forks, num_branches)
                size = max(size, self._fork_size(length + 1, length + 1 + depth + reach - 2))
            if num_forks and (block_ids := self.kv_cache_manager.fork(request, num_forks, size)):
                forks[request_id] = (block_ids, size)
        if forks:
            setattr(output, KV_FORKS, forks)

    def _branches_to_draft(self, turns: Turns) -> tuple[int, int]:
        """Branches that the draft model follows for a request with these turns, and their depth."""
        if not self._drafting:
            return 0, 0
        return self._drafting[min(length_of(turns, self.kv_proposer), len(self._drafting) - 1)]

    def _fork_size(self, first: int, last: int) -> int:
        """How many blocks hold the positions from `first` to `last`, `first` at least."""
        [size] = self.kv_cache_manager.block_sizes
        return max(last, first) // size - first // size + 1

    def check_integrity(self) -> None:
        """Checks the books of KV blocks, between steps.

        Raises:
            KVIntegrityError: they disagree.
        """
        self.kv_cache_manager.check_integrity(block for _, blocks in self.deferred_frees for block in blocks)
