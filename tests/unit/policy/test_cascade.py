"""The control that learns, with several proposers: who is asked, in which order, and whether that pays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.policy.simulator import STEP_TIMES, Chance, Cost, Server, control_for, oracle, simulate
from vllm_spec_plugin.policy.control import Drafting, DraftRequest, MeasuredStep, StepBatch
from vllm_spec_plugin.policy.costs import ProposerTraits
from vllm_spec_plugin.policy.optimal import OptimalControl

SEED = 7
COPYING = Cost(0.0, 2e-6, 2e-5)
# Of a copying proposer and a model: a text that repeats itself half of the time, and one whose repetitions mislead.
REPEATING = (Chance(0.97, 0.5), Chance(0.6))
NOVEL = (Chance(0.05, 0.5), Chance(0.8))


def server_of(kind: str, pass_share: float) -> Server:
    """With a copying proposer, and a model whose passes take that share of a step of one token."""
    step = STEP_TIMES[kind]
    return Server(step, (COPYING, Cost(pass_share * step(1), 0.002 * step(1))), most=5)


# Settings in which one run in five stays with the model for all, at 0.76 to 0.83: nothing is tried for its own sake.
STAYS = {("memory", 0.1, "two of each"), ("cores", 0.01, "two of each")}
LOADS = {"one of each": [REPEATING, NOVEL], "two of each": [REPEATING, REPEATING, NOVEL, NOVEL], "one": [REPEATING]}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("kind", "pass_share"), [("memory", 0.1), ("cores", 0.1), ("memory", 0.4), ("cores", 0.01)])
def test_comes_within_four_hundredths_of_one_that_knows(kind: str, pass_share: float, load: str, full: bool) -> None:
    """Learning costs are included; means of 16 seeds. In settings of `STAYS` means of 48 are 0.95."""
    if not full and (kind, pass_share, load) != ("memory", 0.1, "one of each"):
        pytest.skip("a full-size test")
    server, loads = server_of(kind, pass_share), LOADS[load]
    seeds, share = (48, 0.93) if (kind, pass_share, load) in STAYS else (16, 0.96)
    rates = [simulate(control_for(server), server, lambda _: loads, 1500, SEED + i).rate() for i in range(seeds)]
    assert np.mean(rates) >= share * oracle(server, loads)


def test_a_proposer_that_becomes_good_is_found() -> None:
    """The model is of no use for 500 steps, and then the best there is."""
    server = server_of("memory", 0.2)

    def chances(step: int) -> list[tuple[Chance, ...]]:
        return [(Chance(0.5, 0.5), Chance(0.05 if step < 500 else 0.9))]

    outcome = simulate(control_for(server), server, chances, 1500, SEED)
    assert outcome.rate(100, 500) >= 0.93 * oracle(server, chances(0))
    assert outcome.rate(1100, 1500) >= 0.93 * oracle(server, chances(1000))


def test_a_proposer_that_takes_a_tenth_of_a_second_is_left_alone_at_a_bounded_price() -> None:
    """Its drafts are the better ones. One plan is made of a guess."""
    server = Server(STEP_TIMES["memory"], (COPYING, Cost(0.1, 1e-5)), most=5)
    loads = [(Chance(0.6, 0.6), Chance(0.9))] * 2
    control = control_for(server)
    outcome = simulate(control, server, lambda _: loads, 1500, SEED)
    assert outcome.rate(5) >= 0.96 * oracle(server, loads)
    seconds = sum(seconds for _, seconds in outcome.by_step)
    longest = [
        max((length for draft_plan in step for lane, length in draft_plan if lane == 1), default=0)
        for step in outcome.draft_plans
    ]
    assert sum(longest[5:]) * 0.1 <= 0.01 * seconds + 0.1
    assert sum(longest) > 0


def test_a_request_for_one_proposer_never_gets_another() -> None:
    server, loads = server_of("memory", 0.1), [REPEATING, NOVEL, REPEATING]
    limits = [(5, 0), (0, 5), (5, 5)]
    outcome = simulate(control_for(server), server, lambda _: loads, 400, SEED, limits)
    first, second, third = (
        {lane for draft_plan in of_request for lane, _ in draft_plan}
        for of_request in zip(*outcome.draft_plans, strict=True)
    )
    assert (first, second, third) == ({0}, {1}, {0, 1})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_turns_keep_all_limits(data: st.DataObject) -> None:
    """Whatever is learned and tried: chains of up to 4 tokens and trees of up to 6, up to 3 proposers."""
    kinds = data.draw(st.lists(st.booleans(), min_size=1, max_size=3))
    control = OptimalControl([ProposerTraits(6 if is_tree else 4, is_tree) for is_tree in kinds], 64, 2048)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    most = [6 if is_tree else 5 for is_tree in kinds]
    costs = rng.choice([1e-5, 1e-3], len(kinds))
    for _ in range(30):
        to_draft = [
            DraftRequest(
                f"r{i}",
                tuple(rng.integers(0, most, endpoint=True).tolist()),
                tuple(rng.integers(0, 9, len(kinds)).tolist()),
            )
            for i in rng.permutation(4)[: rng.integers(0, 5)]
        ]
        batch = StepBatch(len(to_draft) + 1, len(to_draft) + 1, 500, int(rng.integers(0, 25)))
        planned = control.plan(to_draft, batch)
        assert len(planned) == len(to_draft)
        assert (
            sum(max((length for _, length in draft_plan), default=0) for draft_plan in planned)
            <= batch.max_draft_tokens
        )
        longest = [0] * len(kinds)
        for request, draft_plan in zip(to_draft, planned, strict=True):
            assert len({lane for lane, _ in draft_plan}) == len(draft_plan)
            for lane, length in draft_plan:
                assert 1 <= length <= request.limits[lane]
                longest[lane] = max(longest[lane], length)
            source, length = draft_plan[int(rng.integers(len(draft_plan)))] if draft_plan else (0, 0)
            drafted = int(rng.integers(0, length, endpoint=True))
            accepted = int(rng.integers(0, drafted, endpoint=True))
            nodes = tuple(rng.permutation(drafted)[:accepted].tolist()) if drafted and kinds[source] else None
            control.verified(request.request_id, draft_plan, source if drafted else None, drafted, accepted, nodes)
        drafting = [
            Drafting(k, int(rng.integers(0, k, endpoint=True)), 0, k * float(c))
            for k, c in zip(longest, costs, strict=True)
        ]
        seconds = 0.01 + sum(done.seconds for done in drafting)
        control.measured(MeasuredStep(len(to_draft) + 1, len(to_draft) + 1, 500, seconds, tuple(drafting)))
