"""The integrity check notices every way in which the books of blocks can go wrong, and says where."""

import pytest

from tests.unit.scheduling.cases import prompt, request
from tests.v1.kv.pool import start
from vllm_spec_plugin.v1.kv.integrity import KVIntegrityError


def _lose_a_reference(manager):
    manager.get_blocks("a").blocks[0][0].ref_cnt -= 1


def _free_twice(manager):
    manager.block_pool.free_blocks([manager.get_blocks("a").blocks[0][1]])


def _free_without_telling_the_owner(manager):
    block = manager.get_blocks("a").blocks[0][0]
    block.ref_cnt = 0
    manager.block_pool.free_block_queue.append(block)


def _hold_twice(manager):
    block = manager.get_blocks("a").blocks[0][1]
    block.ref_cnt += 1
    manager.get_blocks("a").blocks[0].append(block)


def _give_to_two(manager):
    manager.get_blocks("b").blocks[0].append(manager.get_blocks("a").blocks[0][1])


def _leak(manager):
    manager.get_blocks("a").blocks[0].pop()


def _miscount_free(manager):
    manager.block_pool.free_block_queue.num_free_blocks += 1


def _break_the_list(manager):
    first = manager.block_pool.free_block_queue.fake_free_list_head.next_free_block
    first.next_free_block = None


def _make_the_list_a_circle(manager):
    first = manager.block_pool.free_block_queue.fake_free_list_head.next_free_block
    first.next_free_block.next_free_block = first


def _break_the_way_back(manager):
    first = manager.block_pool.free_block_queue.fake_free_list_head.next_free_block
    first.next_free_block.prev_free_block = None


def _free_the_null_block(manager):
    manager.block_pool.free_block_queue.append(manager.block_pool.null_block)


def _forget_a_cached_block(manager):
    cache = manager.block_pool.cached_block_hash_to_block._cache
    cache.pop(next(iter(cache)))


def _find_another_block(manager):
    cache = manager.block_pool.cached_block_hash_to_block._cache
    cache[next(iter(cache))] = manager.block_pool.blocks[-1]


def _fork_a_block_of_the_table(manager):
    manager._forks["b"] = [manager.get_blocks("a").blocks[0][1]]


def _lose_a_fork(manager):
    manager.fork(request("b", prompt(2, 3)), 2, 1)
    manager._forks["b"].pop()


def _give_a_fork_to_two(manager):
    manager.fork(request("b", prompt(2, 3)), 1, 1)
    manager._forks["a"] = manager._forks["b"]


def _cache_a_fork(manager):
    manager.fork(request("b", prompt(2, 3)), 1, 1)
    manager._forks["b"][0]._block_hash = manager.get_blocks("a").blocks[0][0].block_hash


@pytest.mark.parametrize(
    ("sabotage", "message"),
    [
        (_lose_a_reference, "block 1 counts 0 references, its owners are request a"),
        (_free_twice, "block 2 counts 0 references, its owners are request a"),
        (_free_without_telling_the_owner, "block 1 counts 0 references, its owners are request a"),
        (_hold_twice, "block 2 is 2 times in the tables of request a"),
        (_give_to_two, "block 2 counts 1 references, its owners are request a, request b"),
        (_leak, "block 2 counts 1 references, its owners are none"),
        (_miscount_free, "the free list has 6 blocks and counts 7"),
        (_break_the_list, "the free list breaks off after 1 blocks"),
        (_make_the_list_a_circle, "is 6 times in the free list"),
        (_break_the_way_back, "does not point back"),
        (_free_the_null_block, "the null block 0 is in the free list"),
        (_forget_a_cached_block, "block 1 has a hash that the prefix cache does not find it by"),
        (_fork_a_block_of_the_table, "block 2 counts 1 references, its owners are request a, a fork of request b"),
        (_lose_a_fork, "block 5 counts 1 references, its owners are none"),
        (_give_a_fork_to_two, "its owners are a fork of request b, a fork of request a"),
        (_cache_a_fork, "block 4 is a fork of request b and in the prefix cache"),
        (_find_another_block, "the prefix cache finds block 9 by a hash that it has not"),
    ],
)
def test_integrity_check_names_what_is_wrong(manager, running, sabotage, message):
    start(manager, request("b", prompt(2, 3)))
    manager.check_integrity()
    sabotage(manager)
    with pytest.raises(KVIntegrityError, match=message):
        manager.check_integrity()
