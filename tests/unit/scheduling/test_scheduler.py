"""Steps of the real scheduler and a real runner's books: drafts get blocks, lose them, and cost nobody any."""

import copy
import dataclasses
import itertools
import time
from collections import Counter
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from vllm.v1.core.sched import scheduler as vllm_scheduler
from vllm.v1.core.sched.scheduler import Scheduler

from tests.engine.books import holding
from tests.sizes import examples
from tests.unit.scheduling.cases import BLOCK_SIZE, FULL, MAX_MODEL_LEN, WINDOW, prompt, request
from tests.unit.scheduling.steps import NUM_DRAFTS, Core, blocks_between
from vllm_spec_plugin.compat.kv_cache import KVCacheManager, RequestStatus, cached_blocks
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.kv.tree_forks import TreeForks
from vllm_spec_plugin.messages import NO_PLAN, plan_of
from vllm_spec_plugin.scheduling import draft_blocks
from vllm_spec_plugin.scheduling import scheduler as scheduler_module
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.draft_blocks import DraftBlocks
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl
from vllm_spec_plugin.scheduling.draft_limits import DraftLimits
from vllm_spec_plugin.scheduling.prompt_priority import PromptPriority
from vllm_spec_plugin.scheduling.scheduler import SpecScheduler

SETTINGS = settings(max_examples=examples(8, 100), stateful_step_count=40, deadline=None, derandomize=True)


HEADS = {"method": "medusa", "model": "org/heads", "tree": "auto"}


def branching(*branches):
    """A draft model that follows several drafts at once."""
    return {"method": "draft_model", "model": "org/small", "branches": list(branches)}


def add(core, request_id, family, num_tokens, max_tokens=MAX_MODEL_LEN):
    new = request(request_id, prompt(family, num_tokens), max_tokens)
    core.scheduler.add_request(new)
    return new


def held(core, request_id="a"):
    return len(core.manager.get_block_ids(request_id)[0])


def test_the_scheduler_has_our_manager_and_vllm_keeps_its_own():
    assert type(Core(10, FULL).manager) is SpecKVCacheManager
    assert vllm_scheduler.KVCacheManager is KVCacheManager


def test_a_new_request_gets_slots_for_its_first_drafts_in_its_first_step():
    core = Core(20, FULL)
    add(core, "a", 1, 7)
    core.begin()
    assert core.num_slots("a") == 7 + 1 + NUM_DRAFTS
    assert core.output.scheduled_new_reqs[0].block_ids[0] == core.manager.get_block_ids("a")[0]


def test_slots_reach_as_far_as_drafting_after_full_acceptance():
    core = Core(20, FULL)
    running = add(core, "a", 1, 7)
    core.step()
    core.begin()
    # 8 tokens, 4 drafts, a bonus token and 4 more drafts.
    assert core.num_slots("a") >= 8 + 4 + 1 + 4
    core.end(num_accepted=4)
    assert running.num_tokens == 13


@pytest.mark.parametrize(("max_tokens", "num_slots"), [(1, 8), (2, 8), (3, 12), (MAX_MODEL_LEN, 12)])
def test_no_slots_beyond_what_a_request_may_still_write(max_tokens, num_slots):
    core = Core(20, FULL)
    add(core, "a", 1, 7, max_tokens)
    core.begin()
    assert core.num_slots("a") == num_slots


def test_without_draft_kv_nothing_is_reserved():
    core = Core(20, FULL, reserves=False)
    add(core, "a", 1, 7)
    core.begin()
    assert held(core) == 2
    core.end()
    assert core.counters.kv_blocks_reserved == 0


def test_a_prompt_in_chunks_reserves_with_its_last_chunk_only():
    core = Core(20, FULL)
    add(core, "a", 1, 23)
    core.begin()
    assert held(core) == 4
    core.end()
    core.begin()
    assert held(core) == 7


def test_what_drafts_did_not_need_is_freed_before_the_next_step_also_without_drafts():
    core = Core(20, FULL)
    add(core, "a", 1, 7)
    core.begin()
    assert held(core) == 3
    core.end(num_drafts=0)
    core.blocks.kv_proposer = None
    core.begin()
    assert plan_of(core.output).rollback == {"a": (2,)}
    assert held(core) == 2


def test_waiting_drafts_keep_their_slots():
    core = Core(20, FULL)
    add(core, "a", 1, 7)
    core.step(num_drafts=4)
    core.blocks.kv_proposer = None
    core.begin()
    assert not plan_of(core.output).rollback
    assert len(core.output.scheduled_spec_decode_tokens["a"]) == 4


def test_a_request_that_is_not_scheduled_is_cut_on_the_worker_too():
    """Drafts of the first three requests use the step's tokens up."""
    core = Core(40, FULL)
    for i, name in enumerate("abcd"):
        add(core, name, i, 3)
    core.step(num_drafts=0)
    for name in "abc":
        core.scheduler.requests[name].spec_token_ids = [1, 2, 3, 4]
    core.manager.reserve(core.scheduler.requests["d"], 12)
    core.worker.requests["d"].block_ids = core.manager.get_block_ids("d")
    core.worker.input_batch.block_table.add_row(core.manager.get_block_ids("d"), 3)
    core.scheduler.max_num_scheduled_tokens = 15
    core.begin()
    assert "d" not in core.output.num_scheduled_tokens
    assert plan_of(core.output).rollback["d"] == (1,)
    assert len(core.worker.requests["d"].block_ids[0]) == 1


def test_a_preempted_request_is_not_cut_on_the_worker():
    """It is rolled back, and then all its blocks are taken; its table is sent whole when it resumes."""
    core = Core(9, FULL, reserves=False)
    first = add(core, "a", 1, 23)
    core.step(num_drafts=0)
    add(core, "b", 2, 3)
    core.step(num_drafts=0)
    core.manager.reserve(core.scheduler.requests["b"], 8)
    first.spec_token_ids = [1, 2, 3, 4, 5]
    output = core.scheduler.schedule()
    assert output.preempted_req_ids == {"b"}
    assert not plan_of(output).rollback


def test_new_requests_have_their_scope_with_their_first_step():
    core = Core(20, FULL, reserves=False, proposer={"method": "ngram", "shared": True})
    add(core, "a", 1, 7).cache_salt = "secret"
    add(core, "b", 2, 7)
    core.begin()
    assert plan_of(core.output).scopes == {"a": "salt:secret", "b": None}
    core.end()
    core.begin()
    assert not plan_of(core.output).scopes


def test_drafts_are_cut_before_anybody_is_preempted():
    """Two texts of 8 in 4 blocks, both about to need a fifth and sixth, and both with drafts."""
    core = Core(7, FULL, reserves=False)
    add(core, "a", 1, 7)
    add(core, "b", 2, 7)
    core.step(num_drafts=0)
    core.step(num_drafts=4)
    core.begin()
    # 9 tokens each: 3 blocks each, all that there are, with room for 3 drafts.
    assert not core.output.preempted_req_ids
    assert [len(core.output.scheduled_spec_decode_tokens[name]) for name in "ab"] == [3, 3]
    core.end(num_drafts=0)
    assert core.counters.drafts_cut_for_memory == 2


def test_counters_of_blocks_arrive_with_the_statistics():
    core = Core(20, FULL)
    add(core, "a", 1, 7)
    core.step(num_drafts=0)
    assert (core.counters.kv_blocks_rolled_back, core.counters.kv_blocks_reserved) == (0, 1)
    core.step(num_drafts=0)
    assert (core.counters.kv_blocks_rolled_back, core.counters.kv_blocks_reserved) == (1, 3)


def test_reserved_blocks_are_zeroed_in_the_step_that_gives_them():
    """Later the worker would wipe the KV that drafting has written by then."""
    core = Core(40, FULL, dataclasses.replace(FULL, dtype=torch.float16))
    assert core.scheduler.needs_kv_cache_zeroing
    add(core, "a", 1, 7)
    core.begin()
    assert sorted(core.output.new_block_ids_to_zero) == sorted(itertools.chain(*core.manager.get_block_ids("a")))
    before = core.manager.get_block_ids("a")
    core.end(num_accepted=4)
    core.begin()
    added = [i for old, new in zip(before, core.manager.get_block_ids("a"), strict=True) for i in new[len(old) :]]
    assert added
    assert sorted(core.output.new_block_ids_to_zero) == sorted(added)


def test_admission_waits_while_running_requests_would_lose_their_draft_slots():
    core = Core(7, FULL)
    add(core, "a", 1, 7)
    core.step()
    waiting = add(core, "b", 2, 7)
    core.begin()
    # a: 8 tokens, 4 drafts, 1 more, 4 more drafts: 5 of the 6 blocks; b's 2 would leave it 4.
    assert waiting.status == RequestStatus.WAITING
    assert held(core) == 5
    core.end()


def test_without_draft_kv_admission_is_stock():
    core = Core(7, FULL, reserves=False)
    add(core, "a", 1, 7)
    core.step()
    waiting = add(core, "b", 2, 7)
    core.begin()
    assert waiting.status == RequestStatus.RUNNING


def test_with_a_connector_tables_are_left_as_vllm_makes_them():
    core = Core(20, FULL)
    core.scheduler._manages_kv = False
    add(core, "a", 1, 7)
    core.step(num_drafts=4)
    core.begin()
    assert not plan_of(core.output).rollback
    assert held(core) == 3


def trees_core(num_blocks=20, proposer=HEADS):
    """One request with a text of 8 tokens, for which a tree of 2 branches beside the trunk was drafted, 2 deep."""
    core = Core(num_blocks, FULL, reserves=proposer is not HEADS, proposer=proposer)
    add(core, "a", 1, 7)
    core.step(num_branches=2)
    return core


def test_branches_of_waiting_drafts_get_blocks_of_their_own():
    core = trees_core()
    core.begin()
    # Positions 8 and 9.
    assert [len(fork) for fork in core.forks["a"]] == [1, 1]
    assert held(core) == 3
    assert core.manager.block_pool.get_num_free_blocks() == 19 - 3 - 2
    core.end()
    assert core.manager.block_pool.get_num_free_blocks() == 19 - 3 - 2, "the worker may still copy out of them"
    core.begin()
    assert core.forks == {}
    assert core.manager.block_pool.get_num_free_blocks() == 19 - 4


def test_a_chain_gets_no_forks():
    core = Core(20, FULL, reserves=False, proposer=HEADS)
    add(core, "a", 1, 7)
    core.step()
    core.begin()
    assert core.output.scheduled_spec_decode_tokens["a"]
    assert not plan_of(core.output).forks


def test_a_tree_that_crosses_blocks_gets_forks_of_as_many():
    core = Core(20, FULL, reserves=False, proposer=HEADS)
    add(core, "a", 1, 6)
    core.step(num_branches=2)
    core.begin()
    # Positions 7 and 8.
    assert [len(fork) for fork in core.forks["a"]] == [2, 2]


def test_forks_are_whole_or_not_there():
    """Three blocks are left, and a branch takes two."""
    core = Core(7, FULL, reserves=False, proposer=HEADS)
    add(core, "a", 1, 6)
    core.step(num_branches=2)
    core.begin()
    assert [len(fork) for fork in core.forks["a"]] == [2]
    assert core.manager.block_pool.get_num_free_blocks() == 1


def test_forks_of_a_request_that_is_aborted_are_free():
    core = trees_core()
    core.begin()
    core.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    core.scheduler.check_integrity()
    assert core.manager.block_pool.get_num_free_blocks() == 19
    core.end()


@pytest.mark.parametrize("is_delayed", [False, True], ids=["at_once", "by_a_connector"])
def test_nothing_is_kept_of_a_request_that_ended_while_it_was_drafted_for(monkeypatch, is_delayed):
    """Aborted while the model computes, or stopped by that step; a KV connector may hold its blocks for longer."""
    core = trees_core()
    monkeypatch.setattr(core.scheduler, "_connector_finished", lambda request: (is_delayed, None))
    add(core, "b", 1, 7, max_tokens=2)
    core.begin()
    core.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    core.end(num_branches=2)
    assert [request.request_id for request in core.scheduler.running] == ["b"]
    core.step(num_branches=2)
    assert core.scheduler.running == []
    for ended in list(core.scheduler.requests.values()):
        core.scheduler._free_blocks(ended)
    core.step()
    assert not holding(core.scheduler, frozenset("ab"), "scheduler")


def test_a_waiting_tree_is_forgotten_with_its_request():
    core = trees_core()
    core.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    core.step()
    assert not holding(core.scheduler, frozenset("a"), "scheduler")


def test_a_tree_whose_drafts_were_all_cut_is_forgotten():
    """What is drafted next is a chain: no forks for it, and every place of it counts."""
    core = trees_core()
    core.scheduler.requests["a"].spec_token_ids = []
    core.begin()
    assert core.forks == {}
    core.end(num_drafts=3)
    core.begin()
    assert core.forks == {}
    core.end(num_accepted=3)
    assert core.counters.verified_per_position == [1, 1, 1]


def test_places_of_a_tree_are_its_levels():
    core = trees_core()
    core.begin()
    assert len(core.output.scheduled_spec_decode_tokens["a"]) == 4
    core.end(num_accepted=1)
    core.step()
    assert core.counters.verified_per_position == [2, 2, 1, 1]
    assert core.counters.accepted_per_position == [1]


@pytest.mark.parametrize(("branches", "num_forks"), [((3,), 2), ((2, 2), 3), ((2, 1, 1), 1), ((1, 1), 0)])
def test_a_model_that_follows_branches_gets_blocks_for_them_wherever_the_text_ends(branches, num_forks):
    """From the first step on, and for the longest text that the step may leave; `check_forks` looks."""
    for length in range(1, 2 * BLOCK_SIZE + 1):
        core = Core(40, FULL, proposer=branching(*branches))
        add(core, "a", 1, length)
        for _ in range(4):
            core.begin()
            forks = core.forks.get("a", [])
            assert len(forks) == max(num_forks, core.trees.get("a", (0, 0))[0])
            core.end(num_accepted=4, num_branches=2)
            end = int(core.worker.input_batch.num_tokens_no_spec[0])
            # All but the last draft of a branch are computed.
            assert all(len(fork) >= blocks_between(end, end + len(branches) - 2) for fork in forks)


@pytest.mark.parametrize(("tokens", "num_forks"), [(1, 0), (3, 0), (4, 1), (5, 2), (6, 2), (9, 3), (14, 3)])
def test_blocks_are_given_for_the_branches_of_as_many_tokens_as_are_drafted(tokens, num_forks):
    """(2, 2, 1): its order is (0) (0, 0) (0, 0, 0), then (1) (0, 1) (1, 0) and what follows these."""
    core = Core(40, FULL, proposer=branching(2, 2, 1))
    with mock.patch.object(FixedControl, "plan", lambda self, requests, batch: [((0, tokens),) for _ in requests]):
        add(core, "a", 1, 7)
        core.begin()
    assert len(core.forks.get("a", [])) == num_forks


def test_the_prefix_cache_loses_no_more_to_forks_than_are_held_at_a_time():
    core = Core(24, FULL, reserves=False, proposer=HEADS)
    for family in (2, 3, 4):
        add(core, f"old {family}", family, 21, max_tokens=1)
        while core.scheduler.has_requests():
            core.step(num_drafts=0)
    old = {block.block_id for _, block in cached_blocks(core.manager.block_pool)}
    assert len(old) == 15
    add(core, "a", 1, 7)
    most = 0
    for _ in range(20):
        core.begin()
        most = max(most, held(core) + sum(map(len, core.forks.get("a", []))))
        core.end(num_branches=3)
    assert most > 8
    of_a = set(core.manager.get_block_ids("a")[0])
    left = {block.block_id for _, block in cached_blocks(core.manager.block_pool)} - of_a
    assert len(old - left) <= most


def test_slots_of_drafts_that_waited_and_were_dropped_are_given_back():
    """The first three requests' drafts use the tokens of a step up; then the fourth's are dropped, as for a prompt."""
    core = Core(60, FULL)
    for i, name in enumerate("abcd"):
        add(core, name, i, 3)
    core.step(num_drafts=4)
    core.scheduler.max_num_scheduled_tokens = 15
    core.begin()
    assert "d" not in core.output.num_scheduled_tokens
    assert held(core, "d") == 2
    core.end(num_drafts=0)
    core.scheduler.requests["d"].spec_token_ids = []
    core.blocks.kv_proposer = None
    core.begin()
    assert held(core, "d") == 1
    core.end(num_drafts=0)


class Pausing(FixedControl):
    """Drafts as `FixedControl` where it is on."""

    is_constant = False
    is_on = True

    def is_off(self, num_requests):
        return not self.is_on


def count_calls(monkeypatch, owner, *names):
    """Counts calls of an object's functions from now on."""
    calls: Counter[str] = Counter()

    def counted(name, original):
        def call(*args, **kwargs):
            calls[name] += 1
            return original(*args, **kwargs)

        return call

    for name in names:
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    return calls


WORK = [
    (SpecKVCacheManager, ("rollback", "reserve", "num_missing_blocks", "num_blocks", "free_kv_tokens", "fork")),
    (Pausing, ("plan", "verified")),
    (DraftLimits, ("at",)),
    (DraftLengthAdapter, ("verified", "_requests", "_await_drafts")),
    (SpecScheduler, ("_count_acceptance",)),
    (PromptPriority, ("_num_prompt_tokens",)),
    (DraftBlocks, ("_cut_drafts", "_roll_back", "_slots_for_drafting")),
    (TreeForks, ("_demand",)),
    (draft_blocks, ("append_blocks", "keep_drafts")),
]


@pytest.mark.parametrize(
    "proposer", [branching(2, 1), HEADS, {"method": "ngram"}], ids=["draft_model", "tree", "ngram"]
)
def test_a_step_without_drafts_does_no_work_for_them(monkeypatch, proposer):
    control = Pausing()
    monkeypatch.setattr(scheduler_module, "create_control", lambda *args: control)
    core = Core(60, FULL, reserves="branches" in proposer, proposer=proposer)
    for family, name in enumerate("abc"):
        add(core, name, family, 7)
    calls = [count_calls(monkeypatch, owner, *names) for owner, names in WORK]
    for _ in range(3):
        core.step(num_accepted=1, num_branches=1 if proposer is HEADS else 0)
    counted = {name for of_owner in calls for name in of_owner}
    assert {"rollback", "plan", "verified", "at", "_count_acceptance", "_cut_drafts"} <= counted
    control.is_on = False
    # The drafts that wait are verified, and what they did not need is given back.
    core.step(num_accepted=1, num_drafts=0)
    core.step(num_drafts=0)
    monkeypatch.undo()
    calls = [count_calls(monkeypatch, owner, *names) for owner, names in WORK]
    # Our checks look at blocks too.
    monkeypatch.setattr(core, "check_tables", lambda: None)
    for _ in range(4):
        core.step(num_drafts=0)
        assert plan_of(core.output) is NO_PLAN
        assert len(core.output.num_scheduled_tokens) == 3
    assert not sum(calls, Counter())


def test_only_requests_with_drafts_are_rolled_back(monkeypatch):
    rolled_back = []
    rollback = SpecKVCacheManager.rollback

    def noted(self, request, num_tokens):
        rolled_back.append(request.request_id)
        return rollback(self, request, num_tokens)

    core = Core(60, FULL)
    add(core, "a", 1, 7)
    core.scheduler.add_request(request("off", prompt(2, 7), extra_args={"spec": "off"}))
    monkeypatch.setattr(SpecKVCacheManager, "rollback", noted)
    for _ in range(4):
        core.step(num_drafts=0)
    assert rolled_back == ["a", "a", "a"]


def test_counters_are_sent_now_and_then_and_before_the_engine_is_idle(monkeypatch):
    core = Core(20, FULL)
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    core.scheduler.counters_seconds, core.scheduler._counters_sent = 1.0, 100.0
    add(core, "a", 1, 7, max_tokens=6)
    sent = []
    for seconds in (0.4, 0.4, 0.4, 0.1, 0.1, 0.1):
        clock.now += seconds
        core.step(num_drafts=0)
        sent.append(sum(core.counters.chosen_lengths))
    # The fifth and sixth token leave no room for a draft; with the sixth the request ends.
    assert sent == [0, 0, 3, 3, 3, 4]


class Steps(RuleBasedStateMachine):
    """Requests come, are drafted for, preempted, aborted, and all end. Checked in every step, see `Core`.

    Also checked: a step preempts nobody whom vLLM's own scheduler would not preempt in the same state
    without any draft; and in the end, whatever happened, all that is left is served and all blocks are free.
    """

    specs: tuple = (FULL,)
    reserves = True
    proposer: dict | None = None
    # Branches of a draft besides the trunk.
    num_branches = st.just(0)
    num_blocks = 14
    # Less than all requests' drafts: some wait for their turn.
    token_budget = 12

    def __init__(self):
        super().__init__()
        self.core = Core(self.num_blocks, *self.specs, reserves=self.reserves, proposer=self.proposer)
        self.core.scheduler.max_num_scheduled_tokens = self.token_budget
        self.count = 0

    @rule(family=st.integers(1, 2), num_tokens=st.integers(1, 30), max_tokens=st.integers(1, 24))
    def add(self, family, num_tokens, max_tokens):
        self.count += 1
        add(self.core, f"r{self.count}", family, num_tokens, max_tokens)

    @rule(data=st.data(), num_accepted=st.integers(0, 4), num_drafts=st.integers(0, 4))
    def step(self, data, num_accepted, num_drafts):
        self.begin()
        self.core.end(num_accepted, num_drafts, data.draw(self.num_branches))

    @precondition(lambda self: self.core.scheduler.requests)
    @rule(data=st.data(), num_accepted=st.integers(0, 4))
    def abort_in_a_step(self, data, num_accepted):
        self.begin()
        self.abort(data)
        self.core.end(num_accepted, num_branches=data.draw(self.num_branches))

    @precondition(lambda self: self.core.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data):
        if self.core.scheduler.requests:
            name = data.draw(st.sampled_from(sorted(self.core.scheduler.requests)))
            self.core.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    @precondition(lambda self: self.core.scheduler.running)
    @rule()
    def reset_prefix_cache(self):
        """Preempts all; they resume in the very next step."""
        assert self.core.scheduler.reset_prefix_cache(reset_running_requests=True)

    def begin(self):
        # A request that a reset has preempted counts among the next step's.
        before = {request.request_id for request in self.core.scheduler.running}
        spared = self.preempted_without_drafts()
        self.core.begin()
        preempted = before & self.core.output.preempted_req_ids
        assert preempted <= spared
        if len(self.core.scheduler.running) == 0:
            assert not self.core.scheduler.waiting

    def preempted_without_drafts(self):
        """Whom vLLM would preempt, had nobody ever drafted: no drafts to verify, no blocks held for them."""
        ours = self.core.scheduler
        config = ours.vllm_config
        shared = [config, *vars(config).values(), ours.kv_cache_config, ours.structured_output_manager]
        # Copying takes most of these tests' time; nobody writes these.
        shared += [request.sampling_params for request in ours.requests.values()]
        stock = copy.deepcopy(ours, {id(thing): thing for thing in shared})
        stock.kv_cache_manager.release_forks()
        for running in stock.running:
            running.spec_token_ids = []
            stock.kv_cache_manager.rollback(running, running.num_tokens)
        return Scheduler.schedule(stock).preempted_req_ids

    def teardown(self):
        scheduler = self.core.scheduler
        left = sum(request.num_tokens + request.max_tokens for request in scheduler.requests.values())
        for _ in range(left + 10):
            if not scheduler.has_requests():
                break
            self.begin()
            self.core.end(num_accepted=3)
        assert not scheduler.requests
        assert self.core.manager.block_pool.get_num_free_blocks() == self.num_blocks - 1
        assert not holding(scheduler, frozenset(f"r{i}" for i in range(self.count + 1)), "scheduler")


class StepsWithoutDraftKV(Steps):
    """Drafts that come from elsewhere need slots when they are verified, not before; trees then need forks."""

    reserves = False
    proposer = HEADS
    num_branches = st.integers(0, 3)


class StepsOfBranches(Steps):
    """Drafting needs forks too, besides slots for the trunk."""

    proposer = branching(2, 1)
    num_branches = st.integers(0, 2)


class StepsOfTwoGroups(Steps):
    """A second KV group, with a sliding window, in the same pool."""

    specs = (FULL, WINDOW)
    num_blocks = 2 * MAX_MODEL_LEN // BLOCK_SIZE + 1
    token_budget = 7


TestSteps = Steps.TestCase
TestSteps.settings = SETTINGS
TestStepsWithoutDraftKV = StepsWithoutDraftKV.TestCase
TestStepsWithoutDraftKV.settings = SETTINGS
TestStepsOfBranches = StepsOfBranches.TestCase
TestStepsOfBranches.settings = settings(SETTINGS, max_examples=examples(6, 50))
TestStepsOfTwoGroups = StepsOfTwoGroups.TestCase
TestStepsOfTwoGroups.settings = settings(SETTINGS, max_examples=examples(6, 50))
