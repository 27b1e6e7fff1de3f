"""Steps of the real scheduler and a real runner's books: drafts and branches get blocks, and cost nobody any."""

import dataclasses
import itertools
import time
from types import SimpleNamespace

import pytest
import torch

from tests.engine.books import holding
from tests.unit.scheduling.cases import FULL, MAX_MODEL_LEN
from tests.v1.scheduling.steps import HEADS, Core, add, held
from vllm_spec_plugin.compat.kv_cache import RequestStatus
from vllm_spec_plugin.messages import NO_PLAN, plan_of
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.policy.fixed import FixedControl


class Pausing(FixedControl):
    """Drafts as `FixedControl` where it is on."""

    is_constant = False
    is_on = True

    def begin_step(self, num_requests):
        return self.is_on


@pytest.mark.parametrize(("max_tokens", "num_slots"), [(1, 8), (2, 8), (3, 12), (MAX_MODEL_LEN, 12)])
def test_no_slots_beyond_what_a_request_may_still_write(max_tokens, num_slots):
    core = Core(20, FULL)
    add(core, "a", 1, 7, max_tokens)
    core.begin()
    assert core.num_slots("a") == num_slots


def test_new_requests_have_their_scope_with_their_first_step():
    """For a text that is drafted from in the workers, before heads."""
    texts, heads = {"method": "ngram", "shared": True}, {"method": "medusa", "model": str(model_path("medusa"))}
    core = Core(20, FULL, reserves=False, proposer={"method": "cascade", "proposers": [texts, heads]})
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
    assert core.total("drafts_cut_for_memory") == 2


def test_counters_of_blocks_arrive_with_the_statistics():
    core = Core(20, FULL)
    add(core, "a", 1, 7)
    core.step(num_drafts=0)
    assert (core.total("kv_blocks_rolled_back"), core.total("kv_blocks_reserved")) == (0, 1)
    core.step(num_drafts=0)
    assert (core.total("kv_blocks_rolled_back"), core.total("kv_blocks_reserved")) == (1, 3)


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


def test_with_a_connector_tables_are_left_as_vllm_makes_them():
    core = Core(20, FULL)
    core.scheduler._manages_kv = False
    add(core, "a", 1, 7)
    core.step(num_drafts=4)
    core.begin()
    assert not plan_of(core.output).rollback
    assert held(core) == 3


def test_a_step_without_drafts_has_no_plan():
    """Once the drafts that wait are verified, and what they did not need is given back."""
    control = Pausing()
    core = Core(60, FULL, control=control)
    for family, name in enumerate("abc"):
        add(core, name, family, 7)
    for _ in range(3):
        core.step(num_accepted=1)
    control.is_on = False
    core.step(num_accepted=1, num_drafts=0)
    core.step(num_drafts=0)
    for _ in range(4):
        core.step(num_drafts=0)
        assert plan_of(core.output) is NO_PLAN
        assert len(core.output.num_scheduled_tokens) == 3


def test_counters_are_sent_now_and_then_and_before_the_engine_is_idle(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    core = Core(20, FULL)
    core.scheduler.counters_seconds = 1.0
    add(core, "a", 1, 7, max_tokens=6)
    sent = []
    for seconds in (0.4, 0.4, 0.4, 0.1, 0.1, 0.1):
        clock.now += seconds
        core.step(num_drafts=0)
        sent.append(sum(core.total("chosen_lengths")))
    # The fifth and sixth token leave no room for a draft; with the sixth the request ends.
    assert sent == [0, 0, 3, 3, 3, 4]


def trees_core():
    """One request with a text of 8 tokens, for which a tree of 2 branches beside the trunk was drafted, 2 deep."""
    core = Core(20, FULL, reserves=False, proposer=HEADS)
    add(core, "a", 1, 7)
    core.step(num_branches=2)
    return core


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


def test_a_tree_whose_drafts_were_all_cut_is_forgotten():
    """The next draft is a chain: no forks for it, and every place of it counts."""
    core = trees_core()
    core.scheduler.requests["a"].spec_token_ids = []
    core.begin()
    assert core.forks == {}
    core.end(num_drafts=3)
    core.begin()
    assert core.forks == {}
    core.end(num_accepted=3)
    assert core.total("verified_per_position") == [1, 1, 1]


def test_places_of_a_tree_are_its_levels():
    core = trees_core()
    core.begin()
    assert len(core.output.scheduled_spec_decode_tokens["a"]) == 4
    core.end(num_accepted=1)
    core.step()
    assert core.total("verified_per_position") == [2, 2, 1, 1]
    assert core.total("accepted_per_position") == [1]
