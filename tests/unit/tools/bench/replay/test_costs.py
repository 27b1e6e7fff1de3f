"""Curves of step costs, from measured steps."""

import json

import pytest

from tests.unit.tools.bench.replay.cases import costs
from vllm_spec_plugin.tools.bench.records import Step
from vllm_spec_plugin.tools.bench.replay.costs import Costs, Sample, costs_of


def step(num_requests: int, num_tokens: int, seconds: float, drafting: float = 0.0, proposing: float = 0.0) -> Step:
    return Step(num_requests, num_tokens, False, seconds, drafting, proposing)


def prompt(num_requests: int, seconds: float, proposing: float) -> Step:
    return Step(num_requests, 20 * num_requests, True, seconds, proposing, proposing)


def samples(level: int) -> list[Sample]:
    """One proposer: a step is 10 ms, a token 1 ms, the plugin 1 ms, drafting 2 ms a token, its preparation 0.5 ms."""
    target = 0.010 + 0.001 * level
    found = [
        Sample(None, level, 0, [step(level, level, target)] * 4, 20 * level),
        Sample(0, level, 0, [step(level, level, target + 0.001)] * 4, 20 * level),
    ]
    for length in (1, 2, 4):
        proposing = 0.002 * length
        seconds = 0.012 + 0.001 * level * (1 + length) + proposing + 0.0005
        steps = [step(level, level * (1 + length), seconds, proposing + 0.0005, proposing)] * 4
        first = prompt(level, 0.05, proposing + 20 * level * 0.0001)
        found.append(Sample(0, level, length, [first, *steps], 20 * level))
    return found


def test_each_part_of_a_step_has_its_own_cost() -> None:
    found = costs_of([*samples(1), *samples(4)], 1, [(1, 0.01)])
    assert found.without_plugin(4, 4) == pytest.approx(0.014)
    assert found.target(4, 4, has_drafts=False) == pytest.approx(0.015)
    assert found.target(4, 12, has_drafts=True) == pytest.approx(0.024)
    assert found.preparing(1) == pytest.approx(0.0005)
    assert found.proposing(0, 1, 2, 0) == pytest.approx(0.004)
    assert found.proposing(0, 1, 2, 10) == pytest.approx(0.005)
    assert found.proposing(0, 0, 0, 0) == 0


def test_between_measured_sizes_costs_are_interpolated() -> None:
    found = costs_of([*samples(1), *samples(4)], 1, [(1, 0.01)])
    assert found.without_plugin(2, 2) == pytest.approx(0.012)
    assert found.proposing(0, 2, 3, 0) == pytest.approx(0.006)
    # 10 draft tokens of 3 requests.
    assert found.target(3, 13, has_drafts=True) == pytest.approx(0.025)


def test_a_step_with_hardly_any_drafts_costs_no_less_than_one_without() -> None:
    found = costs_of(samples(4), 1, [(1, 0.01)])
    assert found.target(4, 5, has_drafts=True) == pytest.approx(0.017)
    assert found.target(4, 4, has_drafts=True) >= found.target(4, 4, has_drafts=False)


def test_prompts_cost_their_tokens_with_and_without_the_plugin() -> None:
    found = costs_of(samples(4), 1, [(1, 0.01)])
    for more in (found.without_plugin(4, 12) - 0.014, found.target(4, 12, has_drafts=False) - 0.015):
        assert more == pytest.approx(0.008)


def test_noise_is_told_by_quantiles_of_the_ratio_to_the_median() -> None:
    of_none = samples(1)[0]
    noisy = of_none._replace(steps=[step(1, 1, 0.011 * factor) for factor in (0.9, 1.0, 1.0, 1.0, 3.0)])
    found = costs_of([noisy, *samples(1)[1:]], 1, [(1, 0.01)])
    assert found.noise[0] == pytest.approx(0.9)
    assert found.noise[-1] == pytest.approx(3.0)
    assert found.noise[len(found.noise) // 2] == pytest.approx(1.0)


def test_costs_come_back_from_json() -> None:
    assert Costs.from_json(json.loads(json.dumps(costs().to_json()))) == costs()
