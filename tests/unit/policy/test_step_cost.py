"""The cost of a target step is learnt from whatever steps there are."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.policy.step_cost import StepCost, write_seconds

from .curves import SIZES, Noise, cpu, gpu, probe

MAX_TOKENS = 512


def learn(cost, steps, noise, time, sizes, outliers=0.0):
    """Predictions over true times of a step of 4 tokens, after each step."""
    ratios = []
    for _ in range(steps):
        num_tokens = int(noise.rng.choice(sizes))
        seconds = noise(time(num_tokens))
        if noise.rng.random() < outliers:
            seconds *= noise.rng.uniform(20, 100)
        cost.observe(num_tokens, 1, 200, seconds)
        ratios.append(float(cost.seconds(4, 1, 200) / time(4)))
    return np.array(ratios)


def ratios_at(cost, curve, sizes=SIZES):
    return cost.seconds(sizes, 1, 200) / curve(np.array(sizes))


@pytest.mark.parametrize("curve", [cpu, gpu])
def test_before_any_step_it_is_the_probe(curve):
    cost = StepCost(MAX_TOKENS, probe(curve))
    assert cost.num_observations == 0
    assert ratios_at(cost, curve) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("curve", [cpu, gpu])
@pytest.mark.parametrize("factor", [0.7, 1.3, 3.0])
@pytest.mark.parametrize("at", [1, 5, 64])
def test_twenty_steps_at_one_size_correct_the_probes_level_at_all(curve, factor, at):
    # 5% noise.
    cost = StepCost(MAX_TOKENS, probe(curve, factor))
    learn(cost, 20, Noise(), curve, [at])
    assert ratios_at(cost, curve) == pytest.approx(1, abs=0.06)


def test_an_offset_is_found_by_steps_of_several_sizes():
    # Sampling and scheduling take twice the time of the smallest forward: 100 steps, 5% noise.
    cost = StepCost(MAX_TOKENS, probe(cpu))
    sizes = (1, 2, 4, 8, 16, 32)
    learn(cost, 100, Noise(), lambda num_tokens: cpu(num_tokens) + 0.09, sizes)
    assert ratios_at(cost, lambda sizes: cpu(sizes) + 0.09, sizes) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("curve", [cpu, gpu])
@pytest.mark.parametrize("points", [(), (1,), (1, 512)])
def test_the_curve_is_learnt_where_the_probe_says_little(curve, points):
    # 300 steps of up to 64 tokens, 5% noise.
    cost = StepCost(MAX_TOKENS, [(size, float(curve(size))) for size in points])
    learn(cost, 300, Noise(), curve, (1, 2, 4, 5, 8, 9, 16, 24, 33, 48, 64))
    sizes = (1, 5, 9, 16, 33, 64)
    assert ratios_at(cost, curve, sizes) == pytest.approx(1, abs=0.12)


def test_requests_and_context_are_learnt():
    # 1000 steps in which they vary by themselves, 2% noise.
    def time(num_tokens, num_requests, context):
        return gpu(num_tokens) + 1e-4 * num_requests + 4e-7 * context

    cost, noise = StepCost(MAX_TOKENS, probe(gpu)), Noise(0.02)
    for _ in range(1000):
        num_requests = int(noise.rng.integers(1, 33))
        num_tokens = num_requests * int(noise.rng.integers(1, 6))
        context = num_requests * int(noise.rng.integers(10, 1000))
        cost.observe(num_tokens, num_requests, context, noise(time(num_tokens, num_requests, context)))
    for num_requests, context in ((4, 400), (4, 4000), (32, 3200), (32, 32000)):
        predicted = float(cost.seconds(40, num_requests, context))
        assert predicted == pytest.approx(time(40, num_requests, context), rel=0.1)


def test_what_the_first_draft_token_costs_is_learnt():
    """A jump of a quarter between steps of 32 requests with and without drafts, which no curve has; 5% noise."""

    def time(num_drafts):
        return cpu(32 + num_drafts) + (0.25 * cpu(32) if num_drafts else 0)

    cost, noise = StepCost(MAX_TOKENS, probe(cpu)), Noise()
    for step in range(600):
        num_drafts = 0 if step % 4 == 0 else int(noise.rng.integers(1, 33))
        cost.observe(32 + num_drafts, 32, 3200, noise(time(num_drafts)), has_drafts=num_drafts > 0)
    expected = np.empty(33)
    write_seconds(cost.times, 32, 32, 3200, expected)
    assert expected / [time(num_drafts) for num_drafts in range(33)] == pytest.approx(1, abs=0.06)
    assert expected[0] == pytest.approx(float(cost.seconds(32, 32, 3200)))


def test_one_in_twenty_outliers_hardly_matter():
    # 2000 steps with 5% noise, 5% of them 20 to 100 times too long.
    cost = StepCost(MAX_TOKENS, probe(cpu))
    ratios = learn(cost, 2000, Noise(), cpu, range(1, 9), outliers=0.05)[20:]
    assert abs(np.median(ratios) - 1) < 0.03
    assert abs(ratios - 1).max() < 0.15


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("sizes", [[5], range(1, 9)])
def test_a_machine_of_another_speed_is_followed_within_fifty_steps(factor, sizes):
    cost, noise = StepCost(MAX_TOKENS, probe(cpu)), Noise()
    learn(cost, 1000, noise, cpu, sizes)
    learn(cost, 50, noise, lambda num_tokens: factor * cpu(num_tokens), sizes)
    assert ratios_at(cost, lambda sizes: factor * cpu(sizes)) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("first", [0, 1, 7, 300, 511, 512, 600])
@pytest.mark.parametrize("max_tokens", [1, 2, 100, MAX_TOKENS])
def test_seconds_of_a_run_of_sizes_are_those_of_each(first, max_tokens):
    cost = StepCost(max_tokens, probe(cpu))
    learn(cost, 50, Noise(), cpu, (1, 2, 4, 8, 16, 32))
    run = np.empty(401)
    write_seconds(cost.times, first, 3, 1000, run)
    run[1:] -= cost.times.others[2:4] @ [1, 3]
    np.testing.assert_allclose(run, cost.seconds(np.arange(first, first + 401), 3, 1000), rtol=1e-9)


def test_beyond_the_probe_its_last_piece_goes_on():
    cost = StepCost(MAX_TOKENS, [(1, 0.01), (32, 0.02), (64, 0.03)])
    assert cost.seconds([64, 128, 512], 1, 0) == pytest.approx([0.03, 0.05, 0.17])


def test_an_empty_budget_is_refused():
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        StepCost(0)


def test_a_probe_may_be_unordered_repeated_and_disturbed():
    tidy = StepCost(MAX_TOKENS, probe(cpu))
    shuffled = 3 * probe(cpu)[::-1] + [(8, 5.0), (4, math.nan), (2, -1.0), (0, 1.0), (16, math.inf)]
    assert StepCost(MAX_TOKENS, shuffled).seconds(SIZES, 1, 0) == pytest.approx(tidy.seconds(SIZES, 1, 0))


@pytest.mark.parametrize(
    "step",
    [(0, 1, 10, 0.1), (4, -1, 10, 0.1), (4, 1, -1, 0.1), (4, 1, 10, math.nan), (4, 1, 10, -1.0)],
)
def test_a_step_that_cannot_be_is_ignored(step):
    cost, same = (StepCost(MAX_TOKENS, probe(cpu)) for _ in range(2))
    for learner in (cost, same):
        learn(learner, 20, Noise(), cpu, [4])
    predicted = cost.observe(*step)
    assert predicted > 0
    assert (cost.seconds(SIZES, 2, 100) == same.seconds(SIZES, 2, 100)).all()
    assert cost.num_observations == 20


SECONDS = st.one_of(st.floats(), st.floats(1e-9, 1e6))
STEPS = st.lists(
    st.tuples(st.integers(-1, 10**6), st.integers(-1, 10**4), st.integers(-1, 10**9), SECONDS), max_size=40
)
PROBES = st.lists(st.tuples(st.integers(-1, 10**5), SECONDS), max_size=6)
QUERY = np.concatenate([np.arange(0, 600), [10**4, 10**6]])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9000), PROBES, STEPS)
def test_garbage_leaves_it_positive_and_monotone(max_tokens, measured, steps):
    cost = StepCost(max_tokens, measured)
    for step in steps:
        assert cost.observe(*step) > 0
    for num_requests, context in ((0, 0), (8, 10_000)):
        seconds = cost.seconds(QUERY, num_requests, context)
        assert np.isfinite(seconds).all()
        assert (seconds > 0).all()
        assert (np.diff(seconds) >= -1e-9 * seconds[1:]).all()


def test_noise_does_not_lift_what_is_flat():
    # 30% noise, 3000 steps in which 1 to 16 tokens cost the same, looked at every 30.
    cost, noise, seen = StepCost(MAX_TOKENS, probe(gpu)), Noise(0.3), []
    sizes = (1, 2, 3, 4, 6, 8, 12, 16)
    for _ in range(100):
        learn(cost, 30, noise, gpu, sizes)
        seen.append(ratios_at(cost, gpu, sizes))
    # The mean of log-normal noise is not 1.
    assert np.mean(seen) == pytest.approx(math.exp(0.3**2 / 2), abs=0.02)
