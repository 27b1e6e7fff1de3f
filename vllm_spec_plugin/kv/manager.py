"""vLLM's KV cache manager with slots for drafts: reserved from free blocks, taken back when not used."""

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
from vllm_spec_plugin.kv.integrity import check_blocks

_ADMITTED_FROM = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class SpecKVCacheManager(KVCacheManager):
    """Gives a running request's drafts what is free, and the pool back what they did not need.

    Accepted tokens need no call: vLLM counts them as the request's text, and their blocks stay.
    Only KV groups whose blocks are indexed by position are extended and cut; others are left alone.

    Attributes:
        block_sizes: tokens per block of each of those groups.
        oversized: ids of running requests that may hold blocks beyond their text: those that slots were reserved for,
            or that the scheduler gave slots for drafts. An ordered set.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = [manager for manager in self.coordinator.single_type_managers if is_position_indexed(manager)]
        self.block_sizes = tuple(manager.block_size for manager in self._groups)
        self.oversized: dict[str, None] = {}
        self._wanted: Mapping[str, int] = {}
        self._headroom: int | None = None
        self._forks: dict[str, list[KVCacheBlock]] = {}

    def num_blocks(self, request_id: str) -> tuple[int, ...]:
        """How many blocks a request holds in each position-indexed KV group."""
        return tuple(len(manager.req_to_blocks.get(request_id, ())) for manager in self._groups)

    def num_missing_blocks(self, request_id: str, num_tokens: int) -> int:
        """How many blocks a request lacks for slots of its first `num_tokens` tokens."""
        missing = 0
        for manager in self._groups:
            missing += max(0, -(-num_tokens // manager.block_size) - len(manager.req_to_blocks.get(request_id, ())))
        return missing

    def free_kv_tokens(self, most: int) -> int:
        """How many tokens of a new request would find slots in free blocks now, at most `most`."""
        free, sizes = self.block_pool.get_num_free_blocks(), self.block_sizes
        if sum([-(-most // size) for size in sizes]) <= free:
            return most
        tokens = range(most + 1)
        return bisect.bisect_right(tokens, free, key=lambda count: sum([-(-count // size) for size in sizes])) - 1

    def reserve(self, request: Request, num_tokens: int) -> KVCacheBlocks:
        """Gives a request slots for its first `num_tokens` tokens, as far as free blocks reach.

        Free blocks include those that the prefix cache could still have used, as for every allocation of
        vLLM's. No request loses anything. A slot counts only if every KV group has it, so all groups
        reach equally far.

        Args:
            request: a running one, after its slots for the step were allocated.
            num_tokens: text and drafts; never more than `max_model_len` are served.

        Returns:
            The added blocks per KV group, to be appended to the worker's tables; maybe none.
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
        """Frees a request's blocks that begin at or beyond position `num_tokens`.

        A last block that is partly below stays, its further slots are written again. From the first
        block on, counted from the end, that is in the prefix cache, shared or null, nothing is freed.

        Args:
            request: none of its tokens may be in flight.
            num_tokens: how many tokens keep their slots.

        Returns:
            Per KV group how many blocks are left, the length to cut the worker's table to, or None where
            the group is not indexed by position; None if nothing was freed.
        """
        request_id, freed = request.request_id, False
        for manager in self._groups:
            blocks, kept = manager.req_to_blocks.get(request_id, ()), -(-num_tokens // manager.block_size)
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
        """Gives a request blocks for branches of its drafts, as far as free blocks reach.

        They are in no table of the request's, and never cached: the workers fill them, see `TreeStep`.

        Args:
            request: a running one that has none of these yet.
            num_forks: how many branches want blocks of their own.
            blocks_per_fork: how many each of them needs; it gets all or none.

        Returns:
            Block ids, those of a branch together; maybe none.
        """
        num_forks = min(num_forks, self.block_pool.get_num_free_blocks() // blocks_per_fork)
        if num_forks <= 0:
            return []
        blocks = self._forks[request.request_id] = self.block_pool.get_new_blocks(num_forks * blocks_per_fork)
        return [block.block_id for block in blocks]

    def release_forks(self) -> None:
        """Takes all forks back: what was accepted in them is in the requests' own blocks by now.

        They go to the head of the free list, from where the next ones are taken: the prefix cache loses
        no more blocks to forks than are held at a time.
        """
        for request_id in list(self._forks):
            self._release(request_id)

    def free(self, request: Request) -> None:
        """Frees a request's blocks, those of its forks too."""
        self._release(request.request_id)
        self.oversized.pop(request.request_id, None)
        super().free(request)

    def _release(self, request_id: str) -> None:
        if (blocks := self._forks.pop(request_id, None)) is not None:
            self.block_pool.free_blocks(blocks)

    def set_draft_headroom(self, wanted: Mapping[str, int]) -> None:
        """Takes how many tokens' slots each running request will need for its drafts after admission.

        Until the next call, a waiting request is admitted only if, besides it, these find their blocks.
        """
        self._wanted, self._headroom = wanted, None

    def allocate_slots(self, request: Request, num_new_tokens: int, *args: Any, **kwargs: Any) -> KVCacheBlocks | None:
        """vLLM's, leaving the draft headroom to running requests when it admits another.

        With nobody running nothing is left to anybody. So the first request in the queue waits at most
        until those that run have ended.
        """
        if self._wanted and request.status in _ADMITTED_FROM and kwargs.get("has_scheduled_reqs", True):
            # Once per step: vLLM admits after all running requests have what they need.
            if self._headroom is None:
                self._headroom = sum(self.num_missing_blocks(*wanted) for wanted in self._wanted.items())
            kwargs["reserved_blocks"] = kwargs.get("reserved_blocks", 0) + self._headroom
        return super().allocate_slots(request, num_new_tokens, *args, **kwargs)

    def check_integrity(self, retained: Iterable[KVCacheBlock] = ()) -> None:
        """Checks all books of blocks against each other; see `check_blocks`.

        Args:
            retained: blocks that the scheduler frees later, once per reference.

        Raises:
            KVIntegrityError: they disagree.
        """
        managers = [m for m in self.coordinator.single_type_managers if m.block_pool is self.block_pool]
        check_blocks(self.block_pool, managers, retained, self._forks)
