"""Drafts beside a prompt: their bound is the policy's, and requests have equal shares of it."""

import pytest

from tests.unit.scheduling.cases import FULL
from tests.v1.scheduling.steps import NUM_DRAFTS, Core, add
from vllm_spec_plugin.policy.fixed import FixedControl


class Bounded(FixedControl):
    """Allows 15% of a step's tokens, and a number of tokens, as drafts beside a prompt."""

    is_constant = False

    def __init__(self, more=0.0):
        self._more = more

    def max_beside_prompts(self, num_tokens, num_requests, context, limit):
        return min(int(0.15 * (num_tokens + self._more)), limit)


def core_of(control):
    """Two running requests."""
    core = Core(60, FULL, control=control)
    for i, name in enumerate("ab"):
        add(core, name, i, 3)
        core.step()
    return core


def drafts(core):
    return {name: len(tokens) for name, tokens in core.output.scheduled_spec_decode_tokens.items()}


def test_drafts_are_cut_in_the_step_of_a_prompt_only():
    core = core_of(Bounded())
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


@pytest.mark.parametrize(("more", "shares"), [(0, (1, 0)), (6, (1, 1)), (32, (3, 3)), (100, (4, 4))])
@pytest.mark.parametrize("counts", [(0, 4), (1, 4), (2, 2), (4, 1), (4, 4)])
def test_a_requests_share_does_not_depend_on_how_many_drafts_wait(more, shares, counts):
    """A draft's length may depend on its tokens."""
    core = core_of(Bounded(more))
    add(core, "c", 2, 6)
    for request, count in zip(core.scheduler.running, counts, strict=True):
        request.spec_token_ids = request.spec_token_ids[:count]
    core.begin()
    kept = {name: min(count, share) for name, count, share in zip("ab", counts, shares, strict=True)}
    assert drafts(core) == {name: count for name, count in kept.items() if count}


@pytest.mark.parametrize(("control", "most"), [(Bounded(), 2), (None, 4)], ids=["not admitted", "a fixed length"])
def test_a_prompt_cuts_no_drafts_where_it_need_not(control, most):
    """It waits, or draft lengths are fixed."""
    core = core_of(control)
    core.scheduler.max_num_running_reqs = core.scheduler.max_num_active_reqs = most
    add(core, "c", 2, 6)
    core.begin()
    assert drafts(core) == {"a": NUM_DRAFTS, "b": NUM_DRAFTS}
