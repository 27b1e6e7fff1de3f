"""vLLM's scheduler with the plugin's bookkeeping: KV blocks for drafts, and counters."""

import logging
from typing import Any

from vllm_spec_plugin.compat.frontend import carry
from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus, kv_cache_manager_in_place
from vllm_spec_plugin.compat.scheduler import (
    DRAFT_SCOPES,
    DRAFT_SOURCES,
    DRAFT_TREES,
    DRAFT_TURNS,
    KV_FORKS,
    KV_ROLLBACK,
    STEP_COUNTERS,
    STEP_PROBE,
    Scheduler,
    append_blocks,
    stop_padding,
)
from vllm_spec_plugin.config import DraftModelConfig, NgramConfig, PluginConfig
from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.draft_length.create import create_control
from vllm_spec_plugin.scheduling.kv import SpecKVCacheManager
from vllm_spec_plugin.scheduling.pressure import Demand, keep_drafts
from vllm_spec_plugin.scheduling.scope import scope_of
from vllm_spec_plugin.scheduling.steering import Steering
from vllm_spec_plugin.scheduling.stream import GroupedStream
from vllm_spec_plugin.settings import KEY
from vllm_spec_plugin.turns import length_of

logger = logging.getLogger("vllm.vllm_spec_plugin")


class SpecScheduler(Scheduler):
    """Lets every request have its own draft length, gives drafts KV blocks that nobody else needs, and
    sends the workers' counters on to the frontend.

    With a KV connector, block tables stay as vLLM makes them: connectors keep copies of their own,
    which only ever grow.

    Attributes:
        kv_proposer: the place of the proposer that writes KV of its own, so that the tokens it drafts in a step need
            slots; None if there is none.
    """

    kv_cache_manager: SpecKVCacheManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with kv_cache_manager_in_place(SpecKVCacheManager):
            super().__init__(*args, **kwargs)
        stop_padding(self)
        config = PluginConfig.model_validate(self.vllm_config.additional_config[KEY]["config"])
        self.kv_proposer = config.kv_proposer
        # Branches that a draft model follows while it drafts, each with keys and values of its own, and how far.
        self._drafting = (0, 0)
        for proposer in config.proposers:
            if isinstance(proposer, DraftModelConfig) and proposer.branches is not None:
                self._drafting = (proposer.num_branches - 1, len(proposer.branches))
        # Of the trees that wait, and of those in the planned step: forks that verifying them takes, and depth.
        self._trees: dict[str, tuple[int, int]] = {}
        self._verifying: dict[str, tuple[int, int]] = {}
        self._method, self._methods = config.proposer.method, [proposer.method for proposer in config.proposers]
        self._steering = Steering(create_control(config, self.max_num_scheduled_tokens), config, self.max_model_len)
        scopes = [proposer.shared_scope for proposer in config.proposers if isinstance(proposer, NgramConfig)]
        self._shared_scope = scopes[0] if scopes else None
        self._counters = CountersByMethod()
        self._acceptance = AcceptanceLog()
        self._stream = GroupedStream(config.stream_tokens) if config.stream_tokens is not None else None
        self._manages_kv = self.connector is None
        if not self._manages_kv:
            logger.warning("with a KV connector no blocks are reserved for drafts and none taken back")

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plans a step.

        What the last step's drafts left unused goes back to the pool, then drafts are cut where the texts
        need their blocks, then vLLM plans, then it is decided how much to draft, and the drafts to come get what
        is left.
        """
        self._steering.started()
        if not self._manages_kv:
            output = super().schedule(*args, **kwargs)
            self._steer(output)
            return output
        self.kv_cache_manager.join()
        tables = self._roll_back(self.running)
        tables |= self._roll_back(self._cut_drafts())
        self.kv_cache_manager.announce(self._wanted())
        output = super().schedule(*args, **kwargs)
        # A preempted request's table is gone, and sent whole when it resumes.
        running = {request.request_id for request in self.running}
        setattr(output, KV_ROLLBACK, {request_id: cut for request_id, cut in tables.items() if request_id in running})
        self._steer(output)
        self._reserve(output)
        self._fork(output)
        return output

    def _steer(self, output: Any) -> None:
        """Decides how much is drafted at the end of the planned step."""
        most_tokens, manager = self.max_num_scheduled_tokens, self.kv_cache_manager
        if manager.block_sizes:
            most_tokens = min(most_tokens, len(self.running) + manager.free_kv_tokens())
        setattr(output, DRAFT_TURNS, self._steering.plan(output, self.running, most_tokens))
        if self._shared_scope is not None:
            new = [self.requests[new.req_id] for new in output.scheduled_new_reqs]
            scopes = {request.request_id: scope_of(request.cache_salt, self._shared_scope) for request in new}
            setattr(output, DRAFT_SCOPES, scopes)

    def _roll_back(self, requests: list[Request]) -> dict[str, tuple[int | None, ...]]:
        """Frees what is held beyond text and waiting drafts; gives the lengths of the tables that got shorter.

        Called before a step is planned, when the last one's tokens and drafts are known: also for
        requests that were not drafted for.
        """
        manager, tables = self.kv_cache_manager, {}
        before = manager.block_pool.get_num_free_blocks()
        for request in requests:
            # Under pipeline parallelism a later step may still write to what looks unused.
            if request.num_in_flight_tokens == 0:
                table = manager.rollback(request, request.num_tokens_with_spec)
                if table is not None:
                    tables[request.request_id] = table
        num_blocks = manager.block_pool.get_num_free_blocks() - before
        if num_blocks:
            self._counters.of(self._method).kv_blocks_rolled_back += num_blocks
        return tables

    def _cut_drafts(self) -> list[Request]:
        """Drops drafts whose blocks other requests' texts need; gives the requests that lost some.

        How many are dropped depends on lengths and blocks alone, never on the tokens: the output's
        distribution stays.
        """
        manager = self.kv_cache_manager
        free = manager.block_pool.get_num_free_blocks()
        if self._is_plenty(free):
            return []
        # The others wait for a step that is in flight, and ask for nothing.
        requests = [request for request in self.running if request.num_tokens_with_spec > request.num_computed_tokens]
        demands = [
            Demand(
                num_blocks=manager.num_blocks(request.request_id),
                num_tokens=request.num_tokens,
                num_new_tokens=request.num_tokens - request.num_computed_tokens,
                num_drafts=len(request.spec_token_ids),
            )
            for request in requests
        ]
        kept = keep_drafts(demands, manager.block_sizes, free, self.max_num_scheduled_tokens)
        shortened = []
        for request, num_drafts in zip(requests, kept, strict=True):
            num_cut = len(request.spec_token_ids) - num_drafts
            if num_cut:
                request.spec_token_ids = request.spec_token_ids[:num_drafts]
                method = self._methods[self._steering.source(request.request_id)]
                self._counters.of(method).drafts_cut_for_memory += num_cut
                shortened.append(request)
        return shortened

    def _is_plenty(self, num_free_blocks: int) -> bool:
        """Whether there are blocks for all that running requests ask of a step: the usual case, told quickly."""
        tokens = sum(request.num_tokens_with_spec - request.num_computed_tokens for request in self.running)
        # Besides full blocks, each request may begin one per group.
        most = sum(tokens // size + len(self.running) for size in self.kv_cache_manager.block_sizes)
        return most <= num_free_blocks

    def _wanted(self) -> dict[str, int]:
        """Per running request that this step may draft for, the tokens whose slots it will want."""
        if self.kv_proposer is None or not (self.waiting or self.kv_holding_waiting):
            return {}
        return {
            request.request_id: self._slots_for_drafting(
                request, len(request.spec_token_ids), self._kv_length(request.request_id)
            )
            for request in self.running
            if request.num_tokens - request.num_computed_tokens <= self.max_num_scheduled_tokens
        }

    def _kv_length(self, request_id: str) -> int:
        """How many tokens the proposer that keeps KV may draft for a request by the latest plan."""
        return length_of(self._steering.latest.get(request_id, ()), self.kv_proposer)

    def _slots_for_drafting(self, request: Request, num_verified: int, length: int) -> int:
        """How far a request's slots must reach for `length` drafts after a step that verifies `num_verified`.

        Drafting writes KV up to the last but one draft, verifying all of them in the next step one
        position further.
        """
        longest = min(self.max_model_len, request.num_prompt_tokens + request.max_tokens)
        return min(longest, request.num_tokens + num_verified + 1 + length)

    def _reserve(self, output: Any) -> None:
        """Gives the requests that will be drafted for in the planned step slots for it, earlier ones first."""
        if self.kv_proposer is None:
            return
        manager, added = self.kv_cache_manager, {}
        for request in self.running:
            request_id = request.request_id
            length = self._kv_length(request_id)
            if not length or not self._samples(request, output):
                continue
            num_verified = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            blocks = manager.reserve(request, self._slots_for_drafting(request, num_verified, length))
            block_ids = blocks.get_block_ids(allow_none=True)
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

    def _fork(self, output: Any) -> None:
        """Gives requests that verify a tree in the planned step, or draft one, blocks for its branches.

        Earlier requests come first. What is missing costs branches: the workers leave out a tree's last ones,
        whatever their tokens are.
        """
        forks: dict[str, tuple[list[int], int]] = {}
        # Whose drafts were all cut has none to verify, and its tree is no more.
        trees = {request_id: self._trees.pop(request_id, None) for request_id in output.num_scheduled_tokens}
        self._verifying = {
            request_id: tree
            for request_id, tree in trees.items()
            if tree is not None and request_id in output.scheduled_spec_decode_tokens
        }
        for request in self.running if self._verifying or self._drafting[0] else ():
            if not self._samples(request, output):
                continue
            request_id = request.request_id
            num_drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            # vLLM counts the step's tokens as computed already, drafts too.
            length = request.num_computed_tokens - num_drafts
            num_forks, depth = self._verifying.get(request_id, (0, 0))
            size = self._fork_size(length, length + depth - 1) if num_forks else 0
            if self._drafting[0] and self._kv_length(request_id):
                # Where the text will end is not known yet. The last draft of a branch is not fed to the proposer.
                num_forks = max(num_forks, self._drafting[0])
                size = max(size, self._fork_size(length + 1, length + 1 + depth + self._drafting[1] - 2))
            if num_forks and (block_ids := self.kv_cache_manager.fork(request, num_forks, size)):
                forks[request_id] = (block_ids, size)
        setattr(output, KV_FORKS, forks)

    def _fork_size(self, first: int, last: int) -> int:
        """How many blocks hold the positions from `first` to `last`, `first` at least."""
        [size] = self.kv_cache_manager.block_sizes
        return max(last, first) // size - first // size + 1

    @staticmethod
    def _samples(request: Request, output: Any) -> bool:
        """Whether the planned step gets a token for it, and drafts after that: not in the middle of a prompt."""
        return request.request_id in output.num_scheduled_tokens and not request.is_prefill_chunk

    def check_integrity(self) -> None:
        """Checks the books of KV blocks, between steps.

        Raises:
            KVIntegrityError: they disagree.
        """
        self.kv_cache_manager.check_integrity(block for _, blocks in self.deferred_frees for block in blocks)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Takes a step's outcome in."""
        counted = CountersByMethod.from_payload(getattr(model_runner_output, STEP_COUNTERS, []))
        self._counters.add(counted)
        if probe := getattr(model_runner_output, STEP_PROBE, None):
            self._steering.control.probed(probe)
        self._count_acceptance(scheduler_output, model_runner_output)
        self._trees.update(getattr(model_runner_output, DRAFT_TREES, {}))
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        sources = getattr(model_runner_output, DRAFT_SOURCES, {})
        self._steering.updated(self.requests, counted, sources, is_busy=bool(self.running or self.waiting))
        if self._stream is not None:
            self._stream.regroup(outputs)
        return outputs

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # Others that end have an output still to come, with what was held back.
        if self._stream is not None and request.status == RequestStatus.FINISHED_ABORTED:
            self._stream.drop(request.request_id)
        self._trees.pop(request.request_id, None)
        self._steering.forget(request.request_id)
        fared = self._acceptance.ended(request.request_id)
        if fared is not None:
            self._counters.of(self._method).ended.append(fared)
        return super()._free_request(request, *args, **kwargs)

    def _count_acceptance(self, scheduler_output: Any, model_runner_output: Any) -> None:
        if not model_runner_output.sampled_token_ids:
            return
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        for request_id in scheduler_output.num_scheduled_tokens:
            output = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[request_id]]
            if not output or request_id not in self.requests:
                continue
            # A grammar's placeholders were never drafts.
            drafts = scheduler_output.scheduled_spec_decode_tokens.get(request_id, ())
            drafted = len(drafts) - invalid.get(request_id, 0)
            if drafted > 0:
                # A tree has one place per level.
                _, depth = self._verifying.get(request_id, (0, drafted))
                counters = self._counters.of(self._methods[self._steering.source(request_id)])
                counters.count_verified(min(depth, drafted), len(output) - 1)
                self._acceptance.verified(request_id, drafted, len(output) - 1)
            self._steering.verified(request_id, drafted, len(output) - 1)

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's statistics of the step, with the plugin's."""
        stats = super().make_stats(*args, **kwargs)
        self._counters.add(self._steering.take_counters())
        if stats is not None and (payload := self._counters.to_payload()):
            carry(stats, payload)
        # Where nobody wants statistics they must not pile up.
        self._counters = CountersByMethod()
        return stats
