"""The integrity check notices every way in which the books of blocks can go wrong, and says where."""

import pytest

from tests.unit.scheduling.cases import prompt, request
from tests.v1.kv.pool import start
from vllm_spec_plugin.v1.kv.integrity import KVIntegrityError

# Statements that break a manager of request a's blocks 1 and 2 and of request b's block 3; part of the message.
FAULTS = {
    "blocks[0].ref_cnt -= 1": "block 1 counts 0 references, its owners are request a",
    "pool.free_blocks([blocks[1]])": "block 2 counts 0 references, its owners are request a",
    "blocks[0].ref_cnt = 0; queue.append(blocks[0])": "block 1 counts 0 references, its owners are request a",
    "blocks[1].ref_cnt += 1; blocks.append(blocks[1])": "block 2 is 2 times in the tables of request a",
    "manager.get_blocks('b').blocks[0].append(blocks[1])": "block 2 counts 1 references, its owners are request a, req",
    "blocks.pop()": "block 2 counts 1 references, its owners are none",
    "queue.num_free_blocks += 1": "the free list has 6 blocks and counts 7",
    "first.next_free_block = None": "the free list breaks off after 1 blocks",
    "first.next_free_block.next_free_block = first": "is 6 times in the free list",
    "first.next_free_block.prev_free_block = None": "does not point back",
    "queue.append(pool.null_block)": "the null block 0 is in the free list",
    "cache.pop(next(iter(cache)))": "block 1 has a hash that the prefix cache does not find it by",
    "cache[next(iter(cache))] = pool.blocks[-1]": "the prefix cache finds block 9 by a hash that it has not",
    "forks['b'] = [blocks[1]]": "block 2 counts 1 references, its owners are request a, a fork of request b",
    "manager.fork(b, 2, 1); forks['b'].pop()": "block 5 counts 1 references, its owners are none",
    "manager.fork(b, 1, 1); forks['a'] = forks['b']": "its owners are a fork of request b, a fork of request a",
    "manager.fork(b, 1, 1); forks['b'][0]._block_hash = blocks[0].block_hash": "block 4 is a fork of request b and in",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_integrity_check_names_what_is_wrong(manager, running, fault):
    b = request("b", prompt(2, 3))
    start(manager, b)
    manager.check_integrity()
    pool = manager.block_pool
    names = {"manager": manager, "b": b, "pool": pool, "queue": pool.free_block_queue, "forks": manager._forks}
    names |= {"blocks": manager.get_blocks("a").blocks[0], "cache": pool.cached_block_hash_to_block._cache}
    exec(fault, names | {"first": pool.free_block_queue.fake_free_list_head.next_free_block})
    with pytest.raises(KVIntegrityError, match=FAULTS[fault]):
        manager.check_integrity()
