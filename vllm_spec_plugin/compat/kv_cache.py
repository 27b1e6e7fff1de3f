"""vLLM's KV cache bookkeeping: the base class of the manager, and its groups that are indexed by position."""

import contextlib
from collections.abc import Iterator
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import BlockHashWithGroupId, KVCacheBlock
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    FullAttentionManager,
    SingleTypeKVCacheManager,
    SlidingWindowManager,
)
from vllm.v1.request import Request, RequestStatus

from vllm_spec_plugin.compat.patching import replaced

__all__ = [
    "BlockPool",
    "KVCacheBlock",
    "KVCacheBlocks",
    "KVCacheManager",
    "Request",
    "RequestStatus",
    "SingleTypeKVCacheManager",
    "cached_blocks",
    "is_position_indexed",
    "kv_cache_manager_in_place",
    "pending_copies",
]

# Their block i holds positions from i * block_size on, until the request ends. Subclasses (rings, host copies, sinks)
# and state caches differ: exactly these types are cut and extended.
_POSITION_INDEXED = (FullAttentionManager, SlidingWindowManager, ChunkedLocalAttentionManager)


def is_position_indexed(manager: SingleTypeKVCacheManager) -> bool:
    """Whether the KV group of one of vLLM's per-group managers has a block for each stretch of positions."""
    return type(manager) in _POSITION_INDEXED


def pending_copies(manager: SingleTypeKVCacheManager) -> Iterator[KVCacheBlock]:
    """Returns sources and targets of block copies that a per-group manager has not yet sent to the workers."""
    for pair in manager._pending_cow_copies:
        yield from pair


def cached_blocks(pool: BlockPool) -> Iterator[tuple[BlockHashWithGroupId, KVCacheBlock]]:
    """Returns hash and block of every entry of the prefix cache; hashes and blocks may repeat."""
    for key, found in pool.cached_block_hash_to_block._cache.items():
        for block in found.values() if isinstance(found, dict) else (found,):
            yield key, block


@contextlib.contextmanager
def kv_cache_manager_in_place(manager_cls: type[KVCacheManager], drops_last_hit: bool) -> Iterator[None]:
    """Makes vLLM's scheduler build `manager_cls` within the context; the scheduler has no hook for its manager.

    Connectors get the manager in the scheduler's constructor, so it cannot be replaced later.

    Args:
        manager_cls: a subclass of vLLM's `KVCacheManager`.
        drops_last_hit: whether a request recomputes the last block that it finds in the prefix cache: a head's last
            entry there is of the token that followed in another text, or was not computed before that text ended.
    """

    def create(*args: Any, **kwargs: Any) -> KVCacheManager:
        return manager_cls(*args, **kwargs | {"use_eagle": drops_last_hit})

    with replaced(scheduler_module, "KVCacheManager", create):
        yield
