"""Checks the consistency of vLLM's bookkeeping of KV blocks."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from vllm_spec_plugin.compat.kv_cache import (
    BlockPool,
    KVCacheBlock,
    SingleTypeKVCacheManager,
    cached_blocks,
    pending_copies,
)


class KVIntegrityError(RuntimeError):
    """A block's owners, reference count or prefix-cache entry are inconsistent."""


def check_blocks(
    pool: BlockPool,
    managers: Sequence[SingleTypeKVCacheManager],
    retained: Iterable[KVCacheBlock] = (),
    forks: Mapping[str, Iterable[KVCacheBlock]] | None = None,
) -> None:
    """Checks every block of a pool against all tables.

    Takes time proportional to the pool and the tables: for tests and debugging.

    Args:
        pool: vLLM's pool of blocks.
        managers: vLLM's managers of the KV groups, with each request's table.
        retained: blocks with other owners, once per reference.
        forks: blocks that requests own outside their tables, by request.

    Raises:
        KVIntegrityError: names each inconsistent block and its owners.
    """
    owners: defaultdict[int, list[str]] = defaultdict(list)
    faults: list[str] = []
    tables: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
    for manager in managers:
        for request_id, blocks in manager.req_to_blocks.items():
            tables[request_id] += [block for block in blocks if not block.is_null]
        for block in pending_copies(manager):
            owners[block.block_id].append("a pending copy")
    for request_id, blocks in tables.items():
        for block in blocks:
            owners[block.block_id].append(f"request {request_id}")
        faults += [
            f"block {block_id} is {count} times in the tables of request {request_id}"
            for block_id, count in Counter(block.block_id for block in blocks).items()
            if count > 1
        ]
    for block in retained:
        owners[block.block_id].append("a retained copy")

    for request_id, fork in (forks or {}).items():
        for block in fork:
            owners[block.block_id].append(f"a fork of request {request_id}")
            if block.block_hash is not None:
                faults.append(f"block {block.block_id} is a fork of request {request_id} and in the prefix cache")

    faults += _reference_faults(pool, owners) + _queue_faults(pool, owners) + _cache_faults(pool)
    if faults:
        raise KVIntegrityError("KV cache bookkeeping is inconsistent: " + "; ".join(faults))


def _reference_faults(pool: BlockPool, owners: dict[int, list[str]]) -> list[str]:
    return [
        f"block {block.block_id} counts {block.ref_cnt} references, its owners are {_names(owners, block)}"
        for block in pool.blocks
        if not block.is_null and block.ref_cnt != len(owners.get(block.block_id, ()))
    ]


def _queue_faults(pool: BlockPool, owners: dict[int, list[str]]) -> list[str]:
    queue, faults = pool.free_block_queue, []
    free: list[int] = []
    before, block = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
    # A list that runs in a circle is longer than the pool.
    while block is not queue.fake_free_list_tail and len(free) <= len(pool.blocks):
        if block is None:
            faults.append(f"the free list breaks off after {len(free)} blocks")
            break
        if block.prev_free_block is not before:
            faults.append(f"block {block.block_id} in the free list does not point back to the one before it")
        free.append(block.block_id)
        before, block = block, block.next_free_block
    faults += [f"block {i} is {count} times in the free list" for i, count in Counter(free).items() if count > 1]
    if len(free) != queue.num_free_blocks:
        faults.append(f"the free list has {len(free)} blocks and counts {queue.num_free_blocks}")
    listed = set(free)
    for block in pool.blocks:
        if block.is_null:
            if block.block_id in listed:
                faults.append(f"the null block {block.block_id} is in the free list")
        elif (block.ref_cnt == 0) != (block.block_id in listed):
            where = "in" if block.block_id in listed else "not in"
            faults.append(
                f"block {block.block_id} counts {block.ref_cnt} references and is {where} the free list, "
                f"its owners are {_names(owners, block)}"
            )
    used = sum(block.ref_cnt > 0 and not block.is_null for block in pool.blocks)
    total = sum(not block.is_null for block in pool.blocks)
    if queue.num_free_blocks + used != total:
        faults.append(f"{queue.num_free_blocks} free and {used} used blocks are not the pool's {total}")
    return faults


def _cache_faults(pool: BlockPool) -> list[str]:
    faults = []
    for block in pool.blocks:
        if block.block_hash is not None and not pool.cached_block_hash_to_block.contain(
            block.block_hash, block.block_id
        ):
            faults.append(f"block {block.block_id} has a hash that the prefix cache does not find it by")
    for key, block in cached_blocks(pool):
        if pool.blocks[block.block_id] is not block:
            faults.append(f"the prefix cache names a block {block.block_id} that is not the pool's")
        elif key != block.block_hash and key not in pool.cached_block_hashes_by_block.get(block.block_id, ()):
            faults.append(f"the prefix cache finds block {block.block_id} by a hash that it has not")
    return faults


def _names(owners: dict[int, list[str]], block: KVCacheBlock) -> str:
    return ", ".join(owners.get(block.block_id, ())) or "none"
