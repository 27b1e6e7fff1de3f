"""Slots for drafts: what is reserved, what is taken back, and that no book of blocks goes wrong over it."""

from tests.unit.random_cases import random_cases
from tests.unit.scheduling.cases import BLOCK_SIZE, FULL, MAX_MODEL_LEN, WIDE, WINDOW, prompt, request
from tests.v1.kv.pool import make_manager, start


def blocks(num_tokens, size=BLOCK_SIZE):
    return -(-num_tokens // size)


def ids(manager, request_id="a"):
    return manager.get_block_ids(request_id)[0]


@random_cases(20, 200)
def test_slots_are_reserved_and_taken_back_in_groups_of_any_block_size(rng):
    """Three groups in one pool; a worker's tables would follow what is told."""
    manager, running = make_manager(int(rng.integers(8, 30)), FULL, WINDOW, WIDE), request("a", prompt(1, 6))
    start(manager, running)
    tables = manager.get_block_ids("a")
    for _ in range(10):
        wanted = int(rng.integers(1, MAX_MODEL_LEN + 10))
        for table, added in zip(tables, manager.reserve(running, wanted).get_block_ids(), strict=True):
            table.extend(added)
        if manager.block_pool.get_num_free_blocks() >= 3:
            assert not manager.num_missing_blocks("a", min(wanted, MAX_MODEL_LEN))
        kept = int(rng.integers(6, 40))
        expected = [
            min(len(table), blocks(kept, size)) for table, size in zip(tables, manager.block_sizes, strict=True)
        ]
        lengths = manager.rollback(running, kept) or map(len, tables)
        tables = tuple(table[:length] for table, length in zip(tables, lengths, strict=True))
        assert tables == manager.get_block_ids("a")
        assert [len(table) for table in tables] == expected
        manager.check_integrity()


def test_rollback_never_touches_cached_blocks(manager):
    running = request("a", prompt(1, 10))
    start(manager, running)
    manager.reserve(running, 16)
    assert manager.rollback(running, 0) == (2,)
    assert all(manager.block_pool.blocks[i].block_hash for i in ids(manager))
    manager.check_integrity()


def test_rollback_never_touches_shared_blocks(manager, running):
    manager.reserve(running, 16)
    shared = manager.get_blocks("a").blocks[0][2]
    manager.block_pool.touch([shared])
    assert manager.rollback(running, 0) == (3,)
    manager.check_integrity(retained=[shared])


def test_what_was_for_drafts_is_taken_again_before_the_prefix_cache_loses_any(manager, running):
    old = request("b", prompt(2, 16))
    start(manager, old)
    manager.free(old)
    for _ in range(5):
        manager.reserve(running, 16)
        manager.rollback(running, 6)
        manager.fork(running, 3, 1)
        manager.release_forks()
    assert manager.get_computed_blocks(request("c", prompt(2, 20)))[1] == 16


def test_free_kv_tokens_is_what_a_new_request_finds_room_for():
    for specs in ((FULL,), (FULL, WINDOW)):
        manager = make_manager(10, *specs)
        assert manager.free_kv_tokens(1000) == 9 // len(specs) * BLOCK_SIZE
        assert manager.free_kv_tokens(5) == 5
        start(manager, request("a", prompt(1, 6)))
        count = manager.free_kv_tokens(1000)
        assert manager.allocate_slots(request("b", prompt(2, 40)), count + 1) is None
        assert manager.allocate_slots(request("b", prompt(2, 40)), count) is not None
        assert manager.free_kv_tokens(1000) == 0


def test_admission_leaves_announced_blocks_to_running_requests(manager, running):
    """7 blocks are free, and the running request will want 3 of them."""
    manager.set_draft_headroom({"a": 20})
    assert manager.allocate_slots(request("b", prompt(2, 20)), 20) is None
    assert manager.allocate_slots(request("b", prompt(2, 16)), 16) is not None
    manager.check_integrity()


def test_admission_is_stock_when_nobody_runs_or_wants_anything(manager, running):
    manager.set_draft_headroom({"a": 20})
    assert manager.allocate_slots(request("b", prompt(2, 20)), 20, has_scheduled_reqs=False) is not None
    manager.set_draft_headroom({})
    assert manager.allocate_slots(request("c", prompt(3, 8)), 8) is not None
