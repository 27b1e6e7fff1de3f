"""Tests costs: a step's median by size, made monotone."""

import pytest

from vllm_spec_tools.bench.curves import StepCurve, drafting_seconds, step_curve
from vllm_spec_tools.bench.records import EngineStep


def step(tokens: int, ms: float, drafting: float = 0.0, requests: int = 2, in_prompt: bool = False) -> EngineStep:
    return EngineStep(requests, tokens, in_prompt, (ms + drafting) / 1e3, drafting / 1e3, drafting / 1e3)


def test_a_curve_goes_through_medians_of_whole_batches_without_prompts() -> None:
    steps = [step(2, ms, 5) for ms in (1, 2, 9)] + [step(6, 4)] * 3
    steps += [step(2, 100, requests=1)] * 9 + [step(6, 100, in_prompt=True)] * 9
    curve = step_curve(steps, 2)
    assert curve is not None
    assert curve.tokens == (2, 6)
    assert curve.seconds == pytest.approx((0.002, 0.004))


def test_sizes_that_were_seldom_seen_do_not_count_unless_all_are() -> None:
    curve = step_curve([step(2, 1)] * 3 + [step(4, 50)] * 2, 2)
    assert curve is not None
    assert curve.tokens == (2,)
    curve = step_curve([step(2, 1), step(4, 2)], 2)
    assert curve is not None
    assert curve.tokens == (2, 4)
    assert step_curve([step(2, 1)], 3) is None


def test_more_tokens_never_take_less() -> None:
    steps = [step(2, 1)] * 3 + [step(4, 6)] * 3 + [step(6, 3)] * 6 + [step(8, 5)] * 3
    curve = step_curve(steps, 2)
    assert curve is not None
    assert curve.seconds == pytest.approx((0.001, 0.004, 0.004, 0.005))


def test_between_sizes_it_is_straight_and_beyond_it_goes_on() -> None:
    curve = StepCurve((2, 4, 10), (1.0, 2.0, 5.0))
    assert [curve.at(tokens) for tokens in (1, 2, 3, 7, 10, 14)] == pytest.approx([1, 1, 1.5, 3.5, 5, 7])
    assert StepCurve((4,), (2.0,)).at(9) == 2


def test_drafting_is_a_mean_without_its_outliers() -> None:
    steps = [step(2, 1, 0)] * 50 + [step(2, 1, 4)] * 49 + [step(2, 1, 1000)] * 2
    assert drafting_seconds(steps, 2) == pytest.approx(0.196 / 99)
    assert drafting_seconds(steps, 3) is None
