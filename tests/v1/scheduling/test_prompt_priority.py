"""Drafts beside a prompt: their bound follows what tokens cost."""

import pytest

from tests.unit.scheduling.cases import FULL
from tests.v1.scheduling.steps import NUM_DRAFTS, Core, add
from vllm_spec_plugin.policy.optimal import OptimalControl, ProposerTraits
from vllm_spec_plugin.v1.scheduling.prompt_priority import PromptPriority


def control_where(fixed, slope):
    """Builds the control of a server whose steps of n tokens take fixed + slope * n."""
    control = OptimalControl([ProposerTraits(4)], 64, 2048)
    control.probed([(size, fixed + slope * size) for size in (1, 2, 4, 8, 16, 32, 64, 256, 2048)])
    return control


@pytest.mark.parametrize(("fixed", "slope"), [(0.0, 0.002), (0.02, 0.0025), (0.06, 0.0005)])
def test_drafts_add_no_more_than_their_share_of_the_step(fixed, slope):
    most = control_where(fixed, slope).max_beside_prompts(29, 4, 0, 1000)
    assert slope * most <= 0.15 * (fixed + slope * 29) * 1.001 < slope * (most + 1.01)


def test_nothing_is_cut_where_tokens_cost_nothing():
    assert control_where(0.01, 0.0).max_beside_prompts(29, 4, 0, 100) == 100


def core_with_bound(slope, fixed=0.0):
    """Two running requests."""
    core = Core(60, FULL)
    if slope is not None:
        core.scheduler._prompts = PromptPriority(core.scheduler, core.manager, control_where(fixed, slope))
    for i, name in enumerate("ab"):
        add(core, name, i, 3)
        core.step()
    return core


def drafts(core):
    return {name: len(tokens) for name, tokens in core.output.scheduled_spec_decode_tokens.items()}


def test_drafts_are_cut_in_the_step_of_a_prompt_only():
    core = core_with_bound(0.002)
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


@pytest.mark.parametrize(("fixed", "shares"), [(0.0, (1, 0)), (0.012, (1, 1)), (0.064, (3, 3)), (0.2, (4, 4))])
@pytest.mark.parametrize("counts", [(0, 1), (0, 4), (1, 4), (2, 2), (4, 1), (4, 4)])
def test_a_requests_share_does_not_depend_on_how_many_drafts_wait(fixed, shares, counts):
    """A draft's length may depend on its tokens. Verifying 0.15 * (fixed / 0.002 + 8) tokens is allowed."""
    core = core_with_bound(0.002, fixed)
    add(core, "c", 2, 6)
    for request, count in zip(core.scheduler.running, counts, strict=True):
        request.spec_token_ids = request.spec_token_ids[:count]
    core.begin()
    kept = {name: min(count, share) for name, count, share in zip("ab", counts, shares, strict=True)}
    assert drafts(core) == {name: count for name, count in kept.items() if count}


@pytest.mark.parametrize(("slope", "most"), [(0.002, 2), (None, 4)], ids=["not admitted", "a fixed length"])
def test_a_prompt_cuts_no_drafts_where_it_need_not(slope, most):
    """It waits, or draft lengths are fixed."""
    core = core_with_bound(slope)
    core.scheduler.max_num_running_reqs = core.scheduler.max_num_active_reqs = most
    add(core, "c", 2, 6)
    core.begin()
    assert drafts(core) == {"a": NUM_DRAFTS, "b": NUM_DRAFTS}
