"""Steps with drafts against steps without, on servers whose steps are fast and whose drafts cost more than modelled."""

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest

from tests.unit.policy.simulator import Cost, Server, alone, control_for, simulate
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.policy.control import (
    Drafting,
    DraftRequest,
    MeasuredStep,
    Off,
    StepBatch,
)
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.policy.on_off import RETRY_SHARE, ComparedStep, OnOffComparison
from vllm_spec_plugin.policy.optimal import OptimalControl
from vllm_spec_plugin.policy.step_cost import StepCost

SEED = 7


def fast(num_tokens: float) -> float:
    """Seconds of a target of 4M weights, or of a GPU."""
    return 0.006 * float(np.interp(num_tokens, [1, 8, 32, 64, 128, 300], [1, 1.2, 2.2, 3.5, 6, 14]))


def server_with(hidden: float, per_request: float = 0.0, noise: float = 0.05) -> Server:
    """With a draft model, and costs of drafting that are not reported."""
    return Server(fast, (Cost(0.0006, 2e-6),), noise=noise, hidden=hidden, hidden_per_request=per_request)


@pytest.mark.parametrize(("hidden", "per_request"), [(0.002, 0.0), (0.003, 2e-4), (0.01, 0.0)])
@pytest.mark.parametrize("num_requests", [1, 32, 128])
def test_ends_no_slower_than_without_drafts(num_requests: int, hidden: float, per_request: float) -> None:
    """0.97 of it over the first 400 steps, start and noise included; at one request for hidden costs that lose."""
    server, alphas = server_with(hidden, per_request), [0.7] * num_requests
    rates = [simulate(control_for(server), server, lambda _: alone(alphas), 400, seed).rate() for seed in (7, 8)]
    assert np.mean(rates) >= 0.97 * num_requests / fast(num_requests)


def test_alternating_traffic_is_drafted_for_while_it_pays() -> None:
    """Predictable for 400 steps, then not; means of 12 seeds. A bad phase costs 9.5%, all of it at its beginning.

    One percent of that is as plans are reused; the time of planning, which that saves, is not simulated.
    """
    server = server_with(0.001)
    phases = (0.9, 0.1)
    outcomes = [
        simulate(control_for(server), server, lambda step: alone([phases[step // 400 % 2]] * 4), 1600, SEED + i)
        for i in range(12)
    ]
    for phase in range(4):
        rate = np.mean([outcome.rate(400 * phase, 400 * (phase + 1)) for outcome in outcomes])
        assert rate >= (0.9 if phase % 2 else 1.7) * 4 / fast(4)


def test_plans_without_drafts_count_as_off_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft token takes longer than a step of the target."""
    monkeypatch.setattr(OnOffComparison, "is_off", False, raising=False)
    control = control_for(Server(lambda _: 0.006, (Cost(0.006, 0.0),)))
    for _ in range(8):
        control.measured(MeasuredStep(4, 4, 400, 1.006, (Drafting(1, 4, 0, 1.0),)))
    requests, batch = [DraftRequest(name, (4,), (0,)) for name in "abcd"], StepBatch(4, 4, 400, 16)
    off = []
    for _ in range(40):
        assert control.plan(requests, batch) == [()] * 4
        off.append(control.off)
    assert off == sorted(off, key=[Off.NOT, Off.SHORT, Off.LONG].index)
    assert set(off) == set(Off)


def test_off_for_long_ends_eight_steps_before_a_retrial_and_measured_blocks_are_short() -> None:
    """After a loss many steps have no drafts."""
    comparison, cost = OnOffComparison(), StepCost(512, [(1, 0.01), (64, 0.02)])
    before: list[Off] = []
    while comparison.off is not Off.LONG:
        drafted = not comparison.is_off
        before.append(comparison.off)
        assert before[-1] is (Off.NOT if drafted else Off.SHORT)
        comparison.measured(step(0.03 if drafted else 0.01, drafted=drafted), cost.times)
    assert before[0] is Off.SHORT
    lasting = [Off.LONG]
    while comparison.is_off:
        comparison.measured(step(0.01, drafted=False), cost.times)
        lasting.append(comparison.off)
    assert len(lasting) > 128
    assert lasting == [Off.LONG] * (len(lasting) - 9) + [Off.NOT] * 9


def without_drafts(seconds: float, passes: int) -> MeasuredStep:
    """A step of four requests after which nothing is drafted, and in which the drafter made its first pass or none."""
    drafting = (Drafting(0, 0, 0, 0.0, is_timed=False),)
    return MeasuredStep(4, 4, 400, seconds, drafting, drafter_passes=passes)


def test_the_first_pass_of_a_drafter_that_nobody_needs_is_no_time_of_steps_without_speculation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass takes 2 of 12 milliseconds; both kinds of steps are compared as 10."""
    config = parse_config({"proposer": {"method": "vllm", "config": {"method": "ngram"}}}, "plugin.yaml")
    control = create_control(config, 512, True)
    assert isinstance(control, OptimalControl)
    compared: list[float] = []
    monkeypatch.setattr(OnOffComparison, "measured", lambda _, step, times: compared.append(step.seconds))
    for i in range(400):
        control.measured(without_drafts(0.010 + 0.002 * (i % 2), i % 2))
    assert compared[-2:] == pytest.approx([0.01, 0.01], rel=0.02)
    assert control.costs.step_cost.times.others[4:] @ [1, 4, 0] == pytest.approx(0.002, rel=0.1)


def test_text_that_a_drafter_catches_up_with_is_not_a_cost_of_its_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass takes 2 milliseconds and 10 microseconds per token; one step in eight catches up with 400 tokens."""
    config = parse_config({"proposer": {"method": "vllm", "config": {"method": "draft_model"}}}, "plugin.yaml")
    control = create_control(config, 512, True)
    assert isinstance(control, OptimalControl)
    compared: list[ComparedStep] = []
    monkeypatch.setattr(OnOffComparison, "measured", lambda _, step, times: compared.append(step))
    for i in range(400):
        longest, caught_up = i % 4, 400 * (i % 8 == 5)
        passes, rows = longest + (caught_up > 0), 4 * longest
        drafting = (Drafting(longest, rows, caught_up, 0.0, is_timed=False),)
        seconds = 0.010 + 0.002 * passes + 1e-5 * (rows + caught_up)
        control.measured(MeasuredStep(4, 4, 400, seconds, drafting, drafter_passes=passes))
    assert control.costs.step_cost.times.others[4:6] == pytest.approx([0.002, 1e-5], rel=0.1)
    assert [step.catch_up_seconds for step in compared[-4:]] == pytest.approx([0, 0.004, 0, 0], rel=0.1)


def step(seconds: float, *, drafted: bool, gained: float = 0.0) -> ComparedStep:
    """Builds a step of four requests."""
    return ComparedStep(4, 4, 400, seconds, gained, gained, has_drafts=drafted)


def run(
    comparison: OnOffComparison, seconds_off: float, seconds_on: float, num_steps: int, gained: float = 4.0
) -> list[bool]:
    """Whether each step is off; steps with drafts give `gained` tokens more than the four."""
    cost, rng = StepCost(512, [(1, 0.01), (64, 0.02)]), np.random.default_rng(SEED)
    is_off = []
    for _ in range(num_steps):
        off = comparison.is_off
        noise = float(np.exp(rng.normal(0, 0.03)))
        taken = (
            step(seconds_off * noise, drafted=False) if off else step(seconds_on * noise, drafted=True, gained=gained)
        )
        comparison.measured(taken, cost.times)
        is_off.append(off)
    return is_off


def test_what_gains_is_interrupted_for_about_its_share_of_the_time() -> None:
    """Twice the tokens in 1.2 times the time: a step without drafts is 0.8 steps lost."""
    comparison = OnOffComparison()
    is_off = run(comparison, 0.01, 0.012, 3000)
    assert 0 < np.mean(is_off[200:]) < 0.01
    verdict = comparison.verdict
    assert verdict is not None
    assert verdict.gain == pytest.approx(0.8, abs=0.1)


def first_price(seconds_on: Sequence[float], catch_up: float = 0.0) -> tuple[int, int]:
    """Steps with drafts of the first trial, and steps without until the next trial begins.

    Args:
        seconds_on: seconds of the trial's steps in order; the last is of all further ones. Others take 0.01.
        catch_up: seconds of the trial's first step in addition, in which a proposer computed text.
    """
    comparison, cost = OnOffComparison(), StepCost(512, [(1, 0.01), (512, 0.01)])
    num_on, num_off = 0, 0
    for _ in range(30_000):
        if comparison.is_off:
            comparison.measured(step(0.01, drafted=False), cost.times)
            num_off += 1
        elif num_on and num_off > 100:
            return num_on, num_off
        else:
            own = step(seconds_on[min(num_on, len(seconds_on) - 1)], drafted=True)
            more = 0.0 if num_on else catch_up
            comparison.measured(own._replace(seconds=own.seconds + more, catch_up_seconds=more), cost.times)
            num_on, num_off = num_on + 1, 0
    raise AssertionError("no second trial")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_pause_during_a_trial_is_no_price_of_drafting(at: int) -> None:
    """One of 2 s, 200 steps: a plain sum would keep drafts off for 10,000 further steps. Others lose a step each."""
    num_on, num_off = first_price([0.02] * at + [2.0, 0.02])
    assert num_off == pytest.approx(num_on / RETRY_SHARE, rel=0.1)


@pytest.mark.parametrize(("seconds", "lost"), [(0.02, 1.0), (0.05, 4.0)])
def test_a_trial_is_paid_for_by_the_steps_that_follow(seconds: float, lost: float) -> None:
    """By a fiftieth of them: the loss is 2% of the time."""
    num_on, num_off = first_price([seconds])
    assert num_on * lost / RETRY_SHARE == pytest.approx(num_off, rel=0.1)
    assert num_off > 128


def test_catch_up_is_paid_for_in_full() -> None:
    """2 s of it, 200 steps."""
    assert first_price([0.02], catch_up=2.0)[1] == pytest.approx(first_price([0.02])[1] + 200 / RETRY_SHARE, rel=0.01)


def test_a_machine_that_is_slow_for_a_whole_trial_switches_drafts_off_for_a_limited_time() -> None:
    """2 s for each of its steps; a sum would give 160,000 steps."""
    assert first_price([2.0])[1] < 8192 + 50


def drive(
    on: Callable[[int], ComparedStep], off: Callable[[int], ComparedStep], num_steps: int
) -> tuple[OnOffComparison, list[bool]]:
    """Whether each step is off; `on` and `off` get the number of steps since drafts were last switched."""
    comparison, cost = OnOffComparison(), StepCost(512, [(1, 0.01), (512, 0.01)])
    is_off, since = [comparison.is_off], 0
    for _ in range(num_steps):
        comparison.measured((off if is_off[-1] else on)(since), cost.times)
        is_off.append(comparison.is_off)
        since = since + 1 if is_off[-1] == is_off[-2] else 0
    return comparison, is_off


PLAIN, LOSING = step(0.01, drafted=False), step(0.0105, drafted=True)
GAINING = step(0.012, drafted=True, gained=4.0)


def test_pauses_after_small_losses_double() -> None:
    """A loss of 5%. Pauses shorter than 128 steps are not looked at."""
    _, is_off = drive(lambda _: LOSING, lambda _: PLAIN, 8000)
    gaps = np.diff(np.flatnonzero(~np.array(is_off)))
    assert [gap // 64 * 64 for gap in gaps[gaps > 100]][:4] == [128, 256, 512, 1024]


@pytest.mark.parametrize(("gaining", "share"), [(GAINING, 0.2), (PLAIN._replace(has_drafts=True), 0.7)])
def test_text_that_alternates_between_much_gain_and_a_small_loss_keeps_its_drafts(
    gaining: ComparedStep, share: float
) -> None:
    """20 steps that gain 0.8 steps each, or nothing, and 100 that lose 0.05 each; 1,200 steps."""
    numbers = count()
    _, is_off = drive(lambda _: gaining if next(numbers) % 120 < 20 else LOSING, lambda _: PLAIN, 1200)
    assert (np.mean(is_off[120:]) < share) == (gaining is GAINING)


def test_a_third_of_the_steps_has_no_drafts_while_it_is_unclear_whether_drafting_gains() -> None:
    """A gain of 1% is below two standard errors."""
    _, is_off = drive(lambda _: LOSING._replace(seconds=0.0099), lambda _: PLAIN, 1000)
    assert np.mean(is_off[200:]) == pytest.approx(1 / 3, abs=0.05)


def test_first_steps_after_drafting_are_not_the_measure_of_steps_without() -> None:
    """Caches are full of drafting: they take twice as long, against which a loss would look like a gain."""
    # Not those before the first draft.
    begun = iter([PLAIN] * 4)
    slow = PLAIN._replace(seconds=0.02)
    _, is_off = drive(lambda _: LOSING, lambda since: next(begun, slow if since < 4 else PLAIN), 2000)
    assert np.mean(is_off[-1000:]) > 0.95


def test_steps_with_a_plan_of_no_drafts_are_not_the_measure_of_steps_without() -> None:
    """Planning takes time."""
    planned = PLAIN._replace(seconds=0.03, is_planned=True)
    comparison, _ = drive(lambda since: planned if since % 2 else GAINING, lambda _: PLAIN, 400)
    verdict = comparison.verdict
    assert verdict is not None
    assert verdict.gain == pytest.approx(0.8, abs=0.1)


def test_expected_tokens_that_are_not_accepted_are_no_gain() -> None:
    _, is_off = drive(lambda _: GAINING._replace(accepted=0.0), lambda _: PLAIN, 1000)
    assert np.mean(is_off[-500:]) > 0.9


def test_steps_with_long_prompts_are_not_compared() -> None:
    """Every other step with drafts computes a prompt, and takes ten times as long as modelled."""
    cost = [(1, 0.01), (64, 0.02)]
    comparison, step_cost = OnOffComparison(), StepCost(512, cost)
    for number in range(400):
        off = comparison.is_off
        prompt = GAINING._replace(num_tokens=400, seconds=1.0)
        comparison.measured(PLAIN if off else prompt if number % 2 else GAINING, step_cost.times)
    assert comparison.verdict is not None
    assert comparison.verdict.is_sure


def test_catch_up_is_spread_and_then_over() -> None:
    """Ten steps of it in the first step with drafts: a third of a step in the next one, then less and less."""
    late = GAINING._replace(seconds=GAINING.seconds + 0.1, catch_up_seconds=0.1)
    begun = iter([late])
    comparison, is_off = drive(lambda _: next(begun, GAINING), lambda _: PLAIN, 500)
    assert np.mean(is_off[-300:]) < 0.05
    verdict = comparison.verdict
    assert verdict is not None
    assert verdict.gain == pytest.approx(0.8, abs=0.1)


def test_making_drafts_counts_also_where_another_step_verifies_them() -> None:
    """Steps that only make drafts take 0.025 s, those that only verify them half as many tokens more."""
    making, verifying = step(0.025, drafted=True), step(0.01, drafted=True, gained=2.0)
    _, is_off = drive(lambda since: verifying if since % 2 else making, lambda _: PLAIN, 2000)
    assert np.mean(is_off[-1000:]) > 0.9


def test_a_machine_that_becomes_slow_is_not_taken_for_a_loss() -> None:
    """Everything takes twice as long from some step on; drafting still gains. Three blocks of 8 steps find out."""
    comparison = OnOffComparison()
    run(comparison, 0.01, 0.012, 100)
    is_off = run(comparison, 0.02, 0.024, 300)
    assert sum(is_off) <= 3 * 8
