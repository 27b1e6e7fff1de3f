"""Work that the scheduler leaves out where there is nothing to do."""

import time
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.unit.scheduling.cases import FULL, prompt, request
from tests.unit.scheduling.steps import DRAFT_MODEL, HEADS, Core, add
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.kv.tree_forks import TreeForks
from vllm_spec_plugin.messages import NO_PLAN, plan_of
from vllm_spec_plugin.scheduling import draft_blocks
from vllm_spec_plugin.scheduling import scheduler as scheduler_module
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.draft_blocks import DraftBlocks
from vllm_spec_plugin.scheduling.draft_length.control import StepMode
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl
from vllm_spec_plugin.scheduling.draft_limits import DraftLimits
from vllm_spec_plugin.scheduling.prompt_priority import PromptPriority
from vllm_spec_plugin.scheduling.scheduler import SpecScheduler


class Pausing(FixedControl):
    """Drafts as `FixedControl` where it is on."""

    is_constant = False
    is_on = True

    def begin_step(self, num_requests, *, may_skip):
        return StepMode.DRAFTS if self.is_on else StepMode.OFF


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
    (TreeForks, ("_num_blocks",)),
    (draft_blocks, ("append_blocks", "keep_drafts")),
]


@pytest.mark.parametrize("proposer", [DRAFT_MODEL, HEADS, {"method": "ngram"}], ids=["draft_model", "tree", "ngram"])
def test_a_step_without_drafts_does_no_work_for_them(monkeypatch, proposer):
    control = Pausing()
    monkeypatch.setattr(scheduler_module, "create_control", lambda *args: control)
    core = Core(60, FULL, reserves=proposer is DRAFT_MODEL, proposer=proposer)
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
