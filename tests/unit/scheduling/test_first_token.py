"""Drafts beside a prompt: their bound follows what tokens cost."""

import pytest

from tests.unit.scheduling.cases import FULL
from tests.unit.scheduling.steps import NUM_DRAFTS, Core, add
from vllm_spec_plugin.scheduling.first_token import MOST_DELAY, FirstTokenBound, share_out
from vllm_spec_plugin.scheduling.prompt_priority import PromptPriority


def learned(seconds_of, sizes=(8, 16, 24, 40), count=40):
    bound = FirstTokenBound()
    for i in range(count):
        size = sizes[i % len(sizes)]
        bound.observe(size, seconds_of(size))
    return bound


@pytest.mark.parametrize(("fixed", "slope"), [(0.0, 0.002), (0.02, 0.0025), (0.06, 0.0005)])
def test_drafts_add_no_more_than_their_share_of_the_step(fixed, slope):
    bound = learned(lambda size: fixed + slope * size)
    most = bound.max_drafts(29)
    assert slope * most <= MOST_DELAY * (fixed + slope * 29) * 1.001 < slope * (most + 1.01)


def test_nothing_is_bounded_where_tokens_cost_nothing_or_no_cost_is_known():
    assert learned(lambda size: 0.01).max_drafts(29) is None
    assert learned(lambda size: 0.01, sizes=[8]).max_drafts(29) is None
    assert learned(lambda size: 0.002 * size, count=8).max_drafts(29) is None
    assert FirstTokenBound().max_drafts(29) is None


def test_a_step_that_took_a_hundred_times_as_long_changes_little():
    bound = learned(lambda size: 0.02 + 0.0025 * size)
    before = bound.max_drafts(290)
    bound.observe(8, 4.0)
    assert bound.max_drafts(290) == pytest.approx(before, abs=2)


def test_shares_are_equal_and_earlier_requests_get_the_rest():
    assert share_out(5, 3) == [2, 2, 1]
    assert share_out(0, 2) == [0, 0]


def core_with_bound(monkeypatch, slope):
    """Two running requests; what steps really take counts for nothing."""
    core, bound = Core(60, FULL), learned(lambda size: slope * size)
    monkeypatch.setattr(bound, "observe", lambda *_: None)
    core.scheduler._prompts = PromptPriority(core.scheduler, bound)
    for i, name in enumerate("ab"):
        add(core, name, i, 3)
        core.step()
    return core


def drafts(core):
    return {name: len(tokens) for name, tokens in core.output.scheduled_spec_decode_tokens.items()}


def test_drafts_are_cut_in_the_step_of_a_prompt_only(monkeypatch):
    core = core_with_bound(monkeypatch, 0.002)
    core.begin()
    assert drafts(core) == {"a": NUM_DRAFTS, "b": NUM_DRAFTS}
    core.end()
    add(core, "c", 2, 6)
    core.begin()
    # 0.15 * (2 + 6) tokens.
    assert drafts(core) == {"a": 1}
    core.end()
    core.begin()
    assert drafts(core) == {"a": NUM_DRAFTS, "b": NUM_DRAFTS, "c": NUM_DRAFTS}


def test_a_prompt_that_can_not_be_admitted_cuts_no_drafts(monkeypatch):
    core = core_with_bound(monkeypatch, 0.002)
    core.scheduler.max_num_running_reqs = core.scheduler.max_num_active_reqs = 2
    add(core, "c", 2, 6)
    core.begin()
    assert drafts(core) == {"a": NUM_DRAFTS, "b": NUM_DRAFTS}


def test_a_fixed_length_is_never_cut():
    core = Core(60, FULL)
    assert core.scheduler._prompts is None
