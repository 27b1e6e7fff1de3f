"""vLLM's KV cache manager with slots for drafts: reserved from free blocks, rolled back when not used."""

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_spec_plugin.compat.kv_cache import (
    KVCacheBlock,
    KVCacheBlocks,
    KVCacheManager,
    Request,
    RequestStatus,
    is_position_indexed,
)
from vllm_spec_plugin.v1.kv.integrity import check_blocks

_ADMITTED_FROM = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class SpecKVCacheManager(KVCacheManager):
    """Reserves free blocks for drafts of running requests, and returns unused ones to the pool.

    Accepted tokens need no call: vLLM counts them as the request's text, and their blocks stay. Only KV groups that are
    indexed by position are extended and cut; other groups are not changed.

    Attributes:
        block_sizes: tokens per block of each group that is indexed by position.
        oversized: ids of running requests that may have blocks after their text, for reserved slots or scheduled
            drafts; an ordered set.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = [manager for manager in self.coordinator.single_type_managers if is_position_indexed(manager)]
        self.block_sizes = tuple(manager.block_size for manager in self._groups)
        self.oversized: dict[str, None] = {}
        self._num_slots: Mapping[str, int] = {}
        self._headroom: int | None = None
        self._forks: dict[str, list[KVCacheBlock]] = {}

    def num_blocks(self, request_id: str) -> tuple[int, ...]:
        """Returns the number of blocks of a request in each KV group that is indexed by position."""
        return tuple(len(manager.req_to_blocks.get(request_id, ())) for manager in self._groups)

    def num_missing_blocks(self, request_id: str, num_tokens: int) -> int:
        """Returns the number of blocks that a request lacks for its first `num_tokens` tokens."""
        missing = 0
        for manager in self._groups:
            missing += max(0, -(-num_tokens // manager.block_size) - len(manager.req_to_blocks.get(request_id, ())))
        return missing

    def free_kv_tokens(self, max_tokens: int) -> int:
        """Returns the number of tokens of a new request that would find slots in free blocks, at most `max_tokens`."""
        free, sizes = self.block_pool.get_num_free_blocks(), self.block_sizes
        if sum([-(-max_tokens // size) for size in sizes]) <= free:
            return max_tokens
        tokens = range(max_tokens + 1)
        return bisect.bisect_right(tokens, free, key=lambda count: sum([-(-count // size) for size in sizes])) - 1

    def reserve(self, request: Request, num_tokens: int) -> KVCacheBlocks:
        """Reserves slots for a request's first `num_tokens` tokens, limited by free blocks.

        Free blocks include evictable blocks of the prefix cache, as in all of vLLM's allocations. Other requests keep
        theirs. All KV groups get the same number of slots.

        Args:
            request: a running request whose slots for the step are allocated.
            num_tokens: text and drafts, limited to `max_model_len`.

        Returns:
            The added blocks per KV group, to be appended to the worker's tables; possibly none.
        """
        request_id = request.request_id
        num_tokens = min(num_tokens, self.max_model_len)
        room = self.block_pool.get_num_free_blocks()
        while (missing := self.num_missing_blocks(request_id, num_tokens)) > room:
            num_tokens = max((num_tokens - 1) // size * size for size in self.block_sizes)
        if not missing:
            return self.empty_kv_cache_blocks
        added = [
            manager.allocate_new_blocks(request_id, num_tokens, num_tokens) if is_position_indexed(manager) else []
            for manager in self.coordinator.single_type_managers
        ]
        self.oversized[request_id] = None
        return self.create_kv_cache_blocks(tuple(added))

    def rollback(self, request: Request, num_tokens: int) -> tuple[int | None, ...] | None:
        """Frees a request's blocks that begin at or after position `num_tokens`.

        A partly used last block stays. Blocks are freed from the end of the table, up to the first one that is in the
        prefix cache, shared or null.

        Args:
            request: a request without tokens in flight.
            num_tokens: number of tokens that keep their slots.

        Returns:
            Per KV group the number of blocks left, to which the worker's table is cut, or None if the group is not
            indexed by position; None if nothing was freed.
        """
        request_id, freed = request.request_id, False
        for manager in self._groups:
            blocks, kept = manager.req_to_blocks.get(request_id, []), -(-num_tokens // manager.block_size)
            if len(blocks) <= kept:
                continue
            # Blocks that vLLM went past when it cached are its own, hashed or not.
            kept = max(kept, manager.num_cached_block.get(request_id, 0))
            last: list[KVCacheBlock] = []
            while len(blocks) > kept and self.block_pool.is_block_writable(blocks[-1]):
                last.append(blocks.pop())
            self.block_pool.free_blocks(last)
            freed |= bool(last)
        if not freed:
            return None
        return tuple(
            len(manager.req_to_blocks[request_id]) if is_position_indexed(manager) else None
            for manager in self.coordinator.single_type_managers
        )

    def fork(self, request: Request, num_forks: int, blocks_per_fork: int) -> list[int]:
        """Allocates blocks for branches of a request's drafts, limited by free blocks.

        They are in no table of the request, and never cached; the workers fill them, see `TreeStep`.

        Args:
            request: a running request without forks.
            num_forks: number of branches that need blocks.
            blocks_per_fork: blocks per branch; a branch gets all or none.

        Returns:
            Block ids, branch by branch; possibly none.
        """
        num_forks = min(num_forks, self.block_pool.get_num_free_blocks() // blocks_per_fork)
        if num_forks <= 0:
            return []
        blocks = self._forks[request.request_id] = self.block_pool.get_new_blocks(num_forks * blocks_per_fork)
        return [block.block_id for block in blocks]

    def release_forks(self) -> None:
        """Frees all forks; accepted branches are already copied to the requests' own blocks.

        They go to the head of the free list and are reused first, so the prefix cache loses no more blocks than forks
        hold at a time.
        """
        for request_id in list(self._forks):
            self._release(request_id)

    def free(self, request: Request) -> None:
        """Frees a request's blocks, forks included."""
        self._release(request.request_id)
        self.oversized.pop(request.request_id, None)
        super().free(request)

    def _release(self, request_id: str) -> None:
        if (blocks := self._forks.pop(request_id, None)) is not None:
            self.block_pool.free_blocks(blocks)

    def set_draft_headroom(self, num_slots: Mapping[str, int]) -> None:
        """Sets the slots that each running request will need for its drafts after admission.

        Until the next call, a waiting request is admitted only if blocks for these slots remain free.
        """
        self._num_slots, self._headroom = num_slots, None
        # vLLM allocates for every request in every step: without drafts it calls its own method.
        if num_slots:
            self.__dict__["allocate_slots"] = self._allocate_beside_drafts
        else:
            self.__dict__.pop("allocate_slots", None)

    def _allocate_beside_drafts(
        self, request: Request, num_new_tokens: int, *args: Any, **kwargs: Any
    ) -> KVCacheBlocks | None:
        """Allocates slots as vLLM does, keeping the draft headroom of running requests free at admissions.

        Without running requests there is no headroom. So the first request in the queue waits at most until the running
        ones have ended.
        """
        if request.status in _ADMITTED_FROM and kwargs.get("has_scheduled_reqs", True):
            # Once per step: vLLM admits after all running requests have what they need.
            if self._headroom is None:
                self._headroom = sum(self.num_missing_blocks(*needed) for needed in self._num_slots.items())
            kwargs["reserved_blocks"] = kwargs.get("reserved_blocks", 0) + self._headroom
        return super().allocate_slots(request, num_new_tokens, *args, **kwargs)

    def check_integrity(self, retained: Iterable[KVCacheBlock] = ()) -> None:
        """Checks the consistency of all block bookkeeping; see `check_blocks`.

        Args:
            retained: blocks that the scheduler frees later, once per reference.

        Raises:
            KVIntegrityError: the bookkeeping is inconsistent.
        """
        managers = [m for m in self.coordinator.single_type_managers if m.block_pool is self.block_pool]
        check_blocks(self.block_pool, managers, retained, self._forks)
