"""Memory of a policy is the next server's prior: acceptance always, costs and verdicts on the same machine."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.policy.simulator import STEP_TIMES, Cost, Server, alone, simulate
from vllm_spec_plugin.policy.costs import ProposerTraits
from vllm_spec_plugin.policy.memory import Learned, Verdict
from vllm_spec_plugin.policy.on_off import ComparedStep, OnOffComparison
from vllm_spec_plugin.policy.optimal import OptimalControl
from vllm_spec_plugin.policy.step_cost import StepCost

GAINING = Server(STEP_TIMES["memory"], (Cost(0.0005, 0.0),))


def started(learned: Learned | None = None, most: int = 8) -> OptimalControl:
    return OptimalControl([ProposerTraits(most)], 64, 2048, learned)


def taught(server: Server, alpha: float = 0.7, num_requests: int = 4) -> Learned:
    control = started()
    simulate(control, server, lambda _: alone([alpha] * num_requests), 600, seed=0)
    learned = control.learned()
    assert learned is not None
    # As it is in a file.
    return Learned.model_validate_json(learned.model_dump_json())


def draft_tokens(control: OptimalControl, server: Server, num_steps: int, num_requests: int = 4) -> list[int]:
    outcome = simulate(control, server, lambda _: alone([0.7] * num_requests), num_steps, seed=1)
    return [sum(length for own in planned for _, length in own) for planned in outcome.draft_plans]


def test_a_server_that_gained_drafts_from_the_first_step_as_before() -> None:
    """Without memory it begins with steps without drafts, and with longer drafts than the acceptance deserves."""
    usual = np.median(draft_tokens(started(taught(GAINING)), GAINING, 400)[200:])
    warm = draft_tokens(started(taught(GAINING)), GAINING, 20)
    cold = draft_tokens(started(), GAINING, 20)
    assert min(warm) > 0.5 * usual
    assert warm[0] == pytest.approx(usual, rel=0.3)
    assert cold[0] == 0


def test_a_verdict_from_memory_is_soon_compared_again() -> None:
    """It holds for 256 steps; then come 8 without drafts, against which steps with drafts lose here."""
    gained = Verdict(gain=0.5, error=0.05, retry=0, expected=100.0, accepted=100.0)
    comparison, times = OnOffComparison(gained), StepCost(512, [(1, 0.01), (64, 0.02)]).times
    plain, losing = ComparedStep(4, 4, 400, 0.01), ComparedStep(4, 4, 400, 0.03, 2.0, 2.0, has_drafts=True)
    is_off = []
    for _ in range(1000):
        is_off.append(comparison.is_off)
        comparison.measured(plain if comparison.is_off else losing, times)
    assert is_off.index(True) == 256
    assert np.mean(is_off[300:]) > 0.9


def test_a_server_that_lost_begins_without_drafts_and_tries_again() -> None:
    """The loss was remembered with 64 steps until the next trial."""
    lost = Verdict(gain=0.0, error=0.0, retry=64, expected=8.0, accepted=4.0)
    control = started(taught(GAINING).model_copy(update={"verdicts": {3: lost}}))
    lengths = draft_tokens(control, GAINING, 600)
    assert not any(lengths[:64])
    assert np.mean([length > 0 for length in lengths[-300:]]) > 0.8


def test_costs_of_another_machine_are_dropped_and_acceptance_stays() -> None:
    """Steps take twice as long as before: after five of them the verdict is gone, and blocks without drafts come."""
    learned = taught(GAINING)
    control = started(learned)
    before = control.acceptance
    slower = replace(GAINING, step=lambda n: 2 * GAINING.step(n), costs=(Cost(0.001, 0.0),))
    lengths = draft_tokens(control, slower, 30)
    assert 0 in lengths[5:12]
    assert np.asarray(before) == pytest.approx(np.asarray(control.acceptance), abs=0.15)


def test_a_probe_that_fits_keeps_the_costs_and_another_one_replaces_them() -> None:
    learned = taught(GAINING)
    sizes = (1, 2, 4, 8, 16, 32, 64)
    control = started(learned)
    control.probed([(n, 1.1 * GAINING.step(n)) for n in sizes])
    assert control.costs.step_cost.seconds(8, 0, 0) == pytest.approx(
        np.interp(8, learned.step_tokens, learned.step_seconds)
    )
    assert draft_tokens(control, GAINING, 1)[0] > 0
    control = started(learned)
    control.probed([(n, 2 * STEP_TIMES["busy"](n)) for n in sizes])
    assert control.costs.step_cost.seconds(8, 0, 0) == pytest.approx(0.16)
    assert draft_tokens(control, GAINING, 1)[0] == 0


def test_a_probe_by_which_drafts_are_nearly_free_begins_the_trial_at_once() -> None:
    """A GPU that waits for memory; on one that is busy with a single token the first steps have no drafts."""
    for kind, begins in (("memory", True), ("busy", False)):
        control = started()
        control.probed([(n, STEP_TIMES[kind](n)) for n in (1, 2, 4, 8, 16)])
        assert control.begin_step(1) is begins, kind


@pytest.mark.parametrize("most", [4, 16])
def test_memory_of_other_proposers_is_ignored(most: int) -> None:
    control = started(taught(GAINING), most)
    assert control.acceptance == started(None, most).acceptance
    assert not control.begin_step(4)


def test_nothing_is_kept_before_enough_steps_but_what_was_read() -> None:
    learned = taught(GAINING)
    control = started()
    draft_tokens(control, GAINING, 20)
    assert control.learned() is None
    control = started(learned)
    draft_tokens(control, GAINING, 20)
    assert control.learned() == learned
