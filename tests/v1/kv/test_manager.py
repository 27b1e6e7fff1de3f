"""Slots for drafts: what is reserved, what is taken back, and that no book of blocks goes wrong over it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tests.sizes import examples
from tests.unit.scheduling.cases import BLOCK_SIZE, FULL, MAX_MODEL_LEN, WIDE, WINDOW, prompt, request
from tests.v1.kv.pool import make_manager, start
from vllm_spec_plugin.compat.kv_cache import RequestStatus

SETTINGS = settings(max_examples=examples(20, 200), stateful_step_count=40, deadline=None, derandomize=True)


def blocks(num_tokens, size=BLOCK_SIZE):
    return -(-num_tokens // size)


def ids(manager, request_id="a"):
    return manager.get_block_ids(request_id)[0]


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


class Blocks(RuleBasedStateMachine):
    """Requests that come, draft, grow, lose drafts, are preempted, resume and go, in any order.

    A mirror of each request's block table is kept as a worker would, from what the manager returns.
    """

    specs: tuple = (FULL,)
    running = Bundle("running")
    preempted = Bundle("preempted")

    def __init__(self):
        super().__init__()
        self.manager = make_manager(14, *self.specs)
        self.tables = {}
        self.forks = {}
        self.count = 0
        # Drafts that wait to be verified, per request.
        self.waiting = {}

    @rule(target=running, family=st.integers(1, 2), length=st.integers(1, 20), first=st.integers(1, 20))
    def admit(self, family, length, first):
        self.count += 1
        new = request(f"r{self.count}", prompt(family, length))
        return self._admit(new, first)

    @rule(target=running, old=consumes(preempted), first=st.integers(1, 20))
    def resume(self, old, first):
        admitted = self._admit(old, first)
        if admitted == multiple():
            self.waiting.pop(old.request_id, None)
        return admitted

    def _admit(self, new, first):
        found = self.manager.get_computed_blocks(new)[1]
        if start(self.manager, new, min(new.num_tokens, max(found + 1, first))) is None:
            return multiple()
        self.tables[new.request_id] = self.manager.get_block_ids(new.request_id)
        self.waiting[new.request_id] = 0
        return new

    @rule(running=running, count=st.integers(1, 8), accepted=st.integers(0, 5), drafted=st.integers(0, 5))
    def step(self, running, count, accepted, drafted):
        """Computes a chunk of the prompt, or verifies drafts and makes new ones."""
        request_id = running.request_id
        if request_id not in self.tables:
            return
        count = min(count, running.num_tokens - running.num_computed_tokens) or 1
        reaches_end = running.num_computed_tokens + count >= running.num_tokens
        num_drafts = self.waiting[request_id] if reaches_end else 0
        count += num_drafts
        if running.num_computed_tokens + count >= MAX_MODEL_LEN - 6:
            return
        added = self.manager.allocate_slots(running, count)
        if added is None:
            return
        self._append(request_id, added)
        running.num_computed_tokens += count
        if not reaches_end:
            return
        accepted = min(accepted, num_drafts)
        running.num_computed_tokens -= num_drafts - accepted
        running.append_output_token_ids([running.num_tokens % 7 for _ in range(accepted + 1)])
        self.waiting[request_id] = drafted

    @rule(running=running, count=st.integers(1, 12))
    def reserve(self, running, count):
        if running.request_id not in self.tables:
            return
        free = self.manager.block_pool.get_num_free_blocks()
        added = self.manager.reserve(running, running.num_tokens + count)
        self._append(running.request_id, added)
        left = self.manager.block_pool.get_num_free_blocks()
        assert left == free - sum(map(len, added.blocks))
        if left >= len(self.specs):
            reached = min(running.num_tokens + count, MAX_MODEL_LEN)
            assert not self.manager.num_missing_blocks(running.request_id, reached)

    @rule(running=running, num_forks=st.integers(0, 4), size=st.integers(1, 3))
    def fork(self, running, num_forks, size):
        if running.request_id not in self.tables or running.request_id in self.forks:
            return
        free = self.manager.block_pool.get_num_free_blocks()
        forks = self.manager.fork(running, num_forks, size)
        assert len(forks) == min(num_forks, free // size) * size
        assert self.manager.block_pool.get_num_free_blocks() == free - len(forks)
        if forks:
            self.forks[running.request_id] = forks

    @rule()
    def release_forks(self):
        free = self.manager.block_pool.get_num_free_blocks()
        self.manager.release_forks()
        assert self.manager.block_pool.get_num_free_blocks() == free + sum(map(len, self.forks.values()))
        self.forks = {}

    @rule(running=running)
    def rollback(self, running):
        request_id = running.request_id
        if request_id not in self.tables:
            return
        kept = max(running.num_tokens + self.waiting[request_id], running.num_computed_tokens)
        free = self.manager.block_pool.get_num_free_blocks()
        before = self.tables[request_id]
        lengths = self.manager.rollback(running, kept)
        if lengths is not None:
            self.tables[request_id] = tuple(t[:n] for t, n in zip(before, lengths, strict=True))
        sizes = self.manager.block_sizes
        num_freed = sum(max(0, len(table) - blocks(kept, size)) for table, size in zip(before, sizes, strict=True))
        assert self.manager.block_pool.get_num_free_blocks() == free + num_freed

    @rule(target=preempted, running=consumes(running))
    def preempt(self, running):
        if running.request_id not in self.tables:
            return multiple()
        self._free(running)
        running.status = RequestStatus.PREEMPTED
        running.num_computed_tokens = 0
        return running

    @rule(running=consumes(running))
    def abort(self, running):
        if running.request_id in self.tables:
            self._free(running)

    def _free(self, running):
        self.manager.free(running)
        self.forks.pop(running.request_id, None)
        del self.tables[running.request_id], self.waiting[running.request_id]

    def _append(self, request_id, added):
        for table, group in zip(self.tables[request_id], added.get_block_ids(), strict=True):
            table.extend(group)

    @invariant()
    def books_agree(self):
        self.manager.check_integrity()

    @invariant()
    def forks_are_nobody_elses(self):
        tables = map(self.manager.get_block_ids, self.tables)
        taken = {0, *(block_id for table in tables for group in table for block_id in group)}
        for block_id in (block_id for forks in self.forks.values() for block_id in forks):
            assert block_id not in taken
            taken.add(block_id)

    @invariant()
    def tables_are_what_was_told(self):
        for request_id, table in self.tables.items():
            real = self.manager.get_blocks(request_id).blocks
            for mirrored, held in zip(table, real, strict=True):
                assert len(mirrored) == len(held)
                # A sliding window's past is replaced by null blocks, of which no worker is told.
                assert all(block.is_null or block.block_id == i for i, block in zip(mirrored, held, strict=True))


class BlocksOfThreeGroups(Blocks):
    """The same with a second KV group, whose blocks a sliding window frees, and a third one with larger blocks."""

    specs = (FULL, WINDOW, WIDE)


TestBlocks = Blocks.TestCase
TestBlocks.settings = SETTINGS
TestBlocksOfThreeGroups = BlocksOfThreeGroups.TestCase
TestBlocksOfThreeGroups.settings = SETTINGS
