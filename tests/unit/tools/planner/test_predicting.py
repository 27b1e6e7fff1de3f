"""Predictions: theorem 3.8 in the paper's setting, and by hand beyond it."""

from collections.abc import Iterable
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.theory import leviathan
from tests.unit.tools.planner.cases import STEPS, answer
from vllm_spec_tools.bench.curves import DraftingCost, StepCurve
from vllm_spec_tools.bench.records import LoadAnswer, LoadOutput, PhaseAnswer, Progress
from vllm_spec_tools.planner import generalised
from vllm_spec_tools.planner.generalised import StepCosts
from vllm_spec_tools.planner.predicting import Acceptance, Costs, Load, Prediction, fastest, predict

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
    return Costs(concurrency, plain, prompt, curve, DraftingCost(fixed, token), prompt)


def best(costs: Costs, loads: list[Load], choices: Iterable[int], *, is_tree: bool = False) -> Prediction:
    """The fastest of the draft lengths and of none."""
    return fastest(predict(costs, loads, tokens, is_tree=is_tree) for tokens in (0, *choices))


@given(st.floats(0.01, 0.99), st.integers(1, 12), st.floats(0, 2))
def test_where_verifying_is_free_it_is_theorem_3_8(alpha: float, length: int, c: float) -> None:
    found = predict(costs(token=c), [load([alpha] * length)], length)
    expected = leviathan.speedup(alpha, length, c)
    assert found.decode_speedup == pytest.approx(expected, rel=1e-6)
    assert found.speedup == pytest.approx(expected, rel=1e-6)
    assert found.tokens_per_step == pytest.approx(leviathan.expected_tokens(alpha, length), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.83])
@pytest.mark.parametrize("c", [0.03, 0.13, 0.41])
def test_so_is_the_best_draft_length(alpha: float, c: float) -> None:
    found = best(costs(token=c), [load([alpha] * 30)], range(1, 31))
    assert found.tokens == leviathan.best_draft_length(alpha, c)


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
    known = costs(verify=dict(enumerate(steps, 1)), fixed=fixed, token=token)
    theory = StepCosts(steps, draft_token=token, draft_fixed=fixed)
    own = [load(rates)]
    speedups = [1.0]
    for length in range(1, len(rates) + 1):
        found = predict(known, own, length)
        speedups.append(generalised.speedup(rates[:length], theory))
        assert found.speedup == pytest.approx(speedups[-1], rel=1e-6)
    assert best(known, own, range(1, len(rates) + 1)).speedup == pytest.approx(max(speedups), rel=1e-6)


def test_streams_verify_together() -> None:
    known = costs(concurrency=4, plain=2, verify={4: 2, 12: 6}, token=0.5)
    found = predict(known, [load([0.5, 0.5], num_tokens=101)], 2)
    assert found.tokens_per_step == pytest.approx(1.75)
    assert found.step_seconds == pytest.approx(7)
    assert found.draft_seconds == pytest.approx(1)
    assert found.decode_speedup == pytest.approx(1.75 * 2 / 7)
    # 4 requests of 101 tokens, the first of which comes from the step with the prompt.
    assert found.tokens_per_second == pytest.approx(4 * 101 / ((1 + 100 / 1.75) * 7))
    assert found.speedup == pytest.approx(101 * 2 / ((1 + 100 / 1.75) * 7))
    assert found.tpot == pytest.approx(7 / 1.75)


def test_where_drafts_are_not_always_there_steps_are_shorter_too() -> None:
    known = costs(concurrency=2, plain=1, verify={2: 1, 4: 2, 6: 5})
    found = predict(known, [load([0.5, 0.5], draft_share=0.5)], 2)
    assert found.tokens_per_step == pytest.approx(1.375)
    # None, one or both of the requests have a draft of 2 tokens.
    assert found.step_seconds == pytest.approx(0.25 * 1 + 0.5 * 2 + 0.25 * 5)


def test_prompts_are_not_shortened() -> None:
    known = costs(concurrency=2, plain=1, prompt=10)
    found = predict(known, [load([1.0], num_tokens=101)], 1)
    # 101 steps of 1 s against 51, and 2 prompts of 10 s.
    assert found.decode_speedup == pytest.approx(2)
    assert found.speedup == pytest.approx(121 / 71)
    assert found.ttft == pytest.approx(11)
    # While a request writes 100 tokens, the other has a prompt.
    assert found.tpot == pytest.approx(0.6)
    assert predict(known, [load([1.0], num_tokens=101)], 0).tpot == pytest.approx(1.1)


def test_workloads_are_mixed_by_the_steps_that_they_take() -> None:
    loads = [load([1.0], share=0.5, num_tokens=101), load([0.0], share=0.5, num_tokens=101)]
    found = predict(costs(), loads, 1)
    # 50 and 100 steps for 200 tokens.
    assert found.tokens_per_step == pytest.approx(200 / 150)
    longer = [load([1.0], share=0.5, num_tokens=301), load([0.0], share=0.5, num_tokens=101)]
    assert predict(costs(), longer, 1).tokens_per_step == pytest.approx(400 / 250)


def test_a_length_that_was_not_measured_is_the_beginning_of_the_next_longer_one() -> None:
    one = Load(1.0, 101, {1: Acceptance(100, 100, (90,)), 4: Acceptance(100, 100, (80, 60, 40, 20))})
    assert predict(costs(), [one], 1).tokens_per_step == pytest.approx(1.9)
    assert predict(costs(), [one], 3).tokens_per_step == pytest.approx(2.8)


def test_a_tree_is_drafted_whole_and_its_places_are_levels() -> None:
    known = costs(plain=1, verify={1: 1, 7: 1.5}, fixed=0.5)
    tree = Load(1.0, MANY, {6: Acceptance(100, 100, (90, 60, 0, 0, 0, 0))})
    found = predict(known, [tree], 6, is_tree=True)
    assert found.tokens_per_step == pytest.approx(2.5)
    assert found.speedup == pytest.approx(2.5 / 2)
    assert best(known, [tree], [6], is_tree=True).tokens == 6


def test_nothing_is_drafted_where_nothing_pays() -> None:
    found = best(costs(verify={1: 1, 3: 9}), [load([0.5, 0.5])], [1, 2])
    assert (found.tokens, found.speedup) == (0, 1)


def test_counts_add_up_over_jobs() -> None:
    jobs = [answer(2, 3, (0.8, 0.5, 0.5), 0.01, 0), answer(1, 3, (0.4, 0.5, 0.0), 0.01, 0)]
    found = Acceptance.of(jobs, 3)
    assert (found.request_steps, found.drafts) == (3 * STEPS, 3 * STEPS)
    assert found.accepted == (200, 100, 40)
    assert found.reached == pytest.approx([2 / 3, 1 / 3, 2 / 15])
    assert found.rates == pytest.approx([2 / 3, 0.5, 0.4])
    assert found.length == pytest.approx(1 + 340 / 300)
    assert found.tokens_per_step == pytest.approx(1 + 340 / 300)


def test_a_step_that_ends_a_request_with_a_draft_token_is_a_step() -> None:
    """Its bonus token is dropped: after the prompt's token come two of a step, and two drafts that end the request."""
    progress = Progress([1.0], [5], 3, outputs=[LoadOutput([1, 2, 3, 4, 5], True)])
    found = Acceptance.of([LoadAnswer(1.0, [PhaseAnswer(progress, 2, 3, 3, [2, 1])])], 2)
    assert (found.request_steps, found.accepted, found.draft_share) == (2, (2, 1), 1)


def test_steps_without_a_draft_give_one_token() -> None:
    found = Acceptance.of([answer(1, 2, (0.5, 0.5), 0.01, 0, draft_share=0.4)], 2)
    assert found.draft_share == pytest.approx(0.4)
    assert found.rates == pytest.approx([0.5, 0.5])
    assert found.reached == pytest.approx([0.2, 0.1])
    assert found.length == pytest.approx(1.75)
    assert found.tokens_per_step == pytest.approx(1.3)


def test_without_drafts_there_is_no_length() -> None:
    found = Acceptance.of([answer(1, 0, (), 0.01, 0)], 2)
    assert found.length is None
    assert found.rates == [0, 0]
    assert found.tokens_per_step == 1
    assert Acceptance.of([], 2).tokens_per_step == 1
