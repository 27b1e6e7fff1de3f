"""Tests forecasts: theorem 3.8 in the paper's setting, by hand beyond it, and from jobs."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory import leviathan
from tests.unit.tools.planner.cases import (
    ALPHA,
    DRAFTING,
    LEVELS,
    PROMPT,
    STEPS,
    ModelledEngines,
    answer,
    cheap,
    expensive,
    plan,
)
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.arms import NONE
from vllm_spec_tools.bench.curves import StepCurve
from vllm_spec_tools.bench.records import LoadAnswer, LoadOutput, LoadRun, PhaseAnswer, Progress
from vllm_spec_tools.planner import generalised
from vllm_spec_tools.planner.candidates import DRAFT_MODEL, SUFFIX
from vllm_spec_tools.planner.forecast import Acceptance, Costs, Forecast, Load, Measured, Prediction, predict
from vllm_spec_tools.planner.generalised import StepCosts

MANY = 10**9


def load(rates: list[float], share: float = 1.0, num_tokens: int = MANY, draft_share: float = 1.0) -> Load:
    """A workload; unless told otherwise its first tokens do not count."""
    drafts = MANY * draft_share
    accepted = tuple(round(drafts * reached) for reached in accumulate(rates, mul))
    return Load(share, num_tokens, {len(rates): Acceptance(MANY, round(drafts), accepted)})


def costs(
    *,
    concurrency: int = 1,
    plain: float = 1.0,
    verify: dict[int, float] | None = None,
    fixed: float = 0.0,
    token: float = 0.0,
    prompt: float = 0.0,
) -> Costs:
    sizes = verify or {concurrency: plain}
    curve = StepCurve(tuple(sizes), tuple(sizes.values()))
    return Costs(concurrency, plain, prompt, prompt, curve, {k: fixed + k * token for k in (1, 64)})


def best(costs: Costs, loads: list[Load], choices: Iterable[int]) -> Prediction:
    return max((predict(costs, loads, tokens) for tokens in (0, *choices)), key=lambda one: one.speedup)


@given(st.floats(0.01, 0.99), st.integers(1, 12), st.floats(0, 2))
def test_where_verifying_is_free_it_is_theorem_3_8(alpha: float, length: int, c: float) -> None:
    found = predict(costs(token=c), [load([alpha] * length)], length)
    expected = leviathan.speedup(alpha, length, c)
    assert found.decode_speedup == pytest.approx(expected, rel=1e-6)
    assert found.speedup == pytest.approx(expected, rel=1e-6)
    assert found.tokens_per_step == pytest.approx(leviathan.expected_tokens(alpha, length), rel=1e-6)


@given(
    st.lists(st.floats(0.05, 1), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)
def test_with_costs_it_is_the_generalised_theorem_and_the_best_is_found(
    rates: list[float], growth: list[float], fixed: float, token: float
) -> None:
    steps = list(accumulate([1.0, *growth[: len(rates)]]))
    known, own = costs(verify=dict(enumerate(steps, 1)), fixed=fixed, token=token), [load(rates)]
    theory = StepCosts(steps, draft_token=token, draft_fixed=fixed)
    speedups = [1.0, *(generalised.speedup(rates[:length], theory) for length in range(1, len(rates) + 1))]
    found = [predict(known, own, length).speedup for length in range(len(rates) + 1)]
    assert found == pytest.approx(speedups, rel=1e-6)
    assert best(known, own, range(1, len(rates) + 1)).speedup == pytest.approx(max(speedups), rel=1e-6)


def test_drafts_of_some_streams_are_verified_together() -> None:
    known = costs(concurrency=2, plain=1, verify={2: 1, 4: 2, 6: 5}, token=0.5)
    found = predict(known, [load([0.5, 0.5], num_tokens=101, draft_share=0.5)], 2)
    assert found.tokens_per_step == pytest.approx(1.375)
    # None, one or both of the requests have a draft of 2 tokens.
    assert found.step_seconds == pytest.approx(0.25 * 1 + 0.5 * 2 + 0.25 * 5 + 1)
    # The first of 101 tokens comes from the step with the prompt.
    assert found.speedup == pytest.approx(101 / ((1 + 100 / 1.375) * 3.5))


def test_prompts_are_not_shortened() -> None:
    found = predict(costs(concurrency=2, plain=1, prompt=10), [load([1.0], num_tokens=101)], 1)
    # 101 steps of 1 s against 51, and 2 prompts of 10 s.
    assert found.decode_speedup == pytest.approx(2)
    assert found.speedup == pytest.approx(121 / 71)


def test_workloads_are_mixed_by_the_steps_that_they_take() -> None:
    loads = [load([1.0], share=0.5, num_tokens=301), load([0.0], share=0.5, num_tokens=101)]
    assert predict(costs(), loads, 1).tokens_per_step == pytest.approx(400 / 250)


def test_a_length_that_was_not_measured_is_the_beginning_of_the_next_longer_one() -> None:
    one = Load(1.0, 101, {1: Acceptance(100, 100, (90,)), 4: Acceptance(100, 100, (80, 60, 40, 20))})
    assert predict(costs(), [one], 1).tokens_per_step == pytest.approx(1.9)
    assert predict(costs(), [one], 3).tokens_per_step == pytest.approx(2.8)


def test_acceptance_adds_up_over_jobs() -> None:
    jobs = [answer(2, 3, (0.8, 0.5, 0.5), 0.01, 0), answer(1, 3, (0.4, 0.5, 0.0), 0.01, 0)]
    found = Acceptance.of(jobs, 3)
    assert (found.request_steps, found.drafts) == (3 * STEPS, 3 * STEPS)
    assert found.accepted == (200, 100, 40)
    assert found.rates == pytest.approx([2 / 3, 0.5, 0.4])
    assert found.length == found.tokens_per_step == pytest.approx(1 + 340 / 300)
    # Steps without a draft give one token.
    found = Acceptance.of([answer(1, 2, (0.5, 0.5), 0.01, 0, draft_share=0.4)], 2)
    assert (found.draft_share, found.length, found.tokens_per_step) == pytest.approx((0.4, 1.75, 1.3))
    assert found.rates == pytest.approx([0.5, 0.5])
    found = Acceptance.of([answer(1, 0, (), 0.01, 0)], 2)
    assert (found.length, found.rates, found.tokens_per_step) == (None, [0, 0], 1)
    assert Acceptance.of([], 2).tokens_per_step == 1


def test_a_step_that_ends_a_request_with_a_draft_token_is_a_step() -> None:
    """Its bonus token is dropped: after the prompt's token come two of a step, and two drafts that end the request."""
    progress = Progress([1.0], [5], 3, outputs=[LoadOutput([1, 2, 3, 4, 5], True)])
    found = Acceptance.of([LoadAnswer(1.0, [PhaseAnswer(progress, 2, 3, 3, [2, 1])])], 2)
    assert (found.request_steps, found.accepted, found.draft_share) == (2, (2, 1), 1)


@pytest.fixture(scope="module")
def found() -> dict[str, Forecast]:
    return {one.candidate.name: one for one in plan().forecasts}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [SUFFIX, DRAFT_MODEL])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_it_is_what_acceptance_and_costs_come_to(
    found: dict[str, Forecast], name: str, level: int, tokens: int
) -> None:
    prediction = found[name].all[level][tokens]
    fixed, token = DRAFTING[name]
    step, per_step = (
        cheap(level * (1 + tokens)) + fixed + tokens * token,
        leviathan.expected_tokens(ALPHA[name], tokens),
    )
    assert prediction.tokens == tokens
    assert prediction.step_seconds == pytest.approx(step, rel=0.01)
    assert prediction.tokens_per_step == pytest.approx(per_step, rel=0.01)
    plain = (1 + STEPS) * cheap(level) + level * PROMPT
    assert prediction.speedup == pytest.approx(plain / ((1 + STEPS / per_step) * step + level * PROMPT), rel=0.01)


def test_the_best_is_the_best_of_all(found: dict[str, Forecast]) -> None:
    for one in found.values():
        assert all(one.best[level] == max(one.all[level], key=lambda own: own.speedup) for level in LEVELS)
    draft = found[DRAFT_MODEL]
    assert draft.tokens == 4
    assert draft.score[0] == pytest.approx((draft.best[1].speedup * draft.best[8].speedup) ** 0.5)


def test_where_verifying_is_expensive_nothing_is_drafted() -> None:
    for one in plan(ModelledEngines(verify=expensive)).forecasts:
        assert (one.tokens, one.score[0]) == (0, 1)


def test_a_curve_begins_with_the_step_without_drafts_and_too_short_jobs_are_said() -> None:
    runs = [LoadRun(NONE, ("edit", 8), 0, answer(8, 0, (), cheap(8), 0.0))]
    runs += [LoadRun(f"a, K = {k}", ("edit", 8), 0, answer(8, k, (0.5,) * k, cheap(8 + 8 * k), 0.001)) for k in (1, 4)]
    curve = Measured(runs).curve(8)
    assert curve.tokens == (8, 16, 40)
    assert curve.seconds == pytest.approx([cheap(tokens) for tokens in curve.tokens])
    for wrong in (Measured(runs[:1]), Measured([replace(run, cell=("edit", 4)) for run in runs])):
        with pytest.raises(UserError, match="no step had 8 requests at once; allowed: more --request-tokens"):
            wrong.curve(8)
