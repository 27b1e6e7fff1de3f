"""Steps of the real scheduler with trees: branches get blocks of their own, and give them back."""

import pytest

from tests.engine.books import holding
from tests.unit.scheduling.cases import FULL
from tests.v1.scheduling.steps import HEADS, Core, add, held
from vllm_spec_plugin.compat.kv_cache import RequestStatus, cached_blocks


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
