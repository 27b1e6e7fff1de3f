"""Tests forecasts from jobs, and how large a tree is worth measuring."""

from dataclasses import replace

import pytest

from benchmarks.theory.leviathan import expected_tokens
from tests.unit.tools.planner.cases import ALPHA, DRAFTING, LEVELS, PROMPT, STEPS, WORKLOADS, cheap, expensive, measured
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.medusa.checkpoint import HeadsConfig, read_heads_config
from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.curves import StepCurve
from vllm_spec_tools.planner.candidates import DRAFT_MODEL, NONE, SUFFIX, Heads, MeasuredCandidate, chain_engines
from vllm_spec_tools.planner.forecast import (
    Chained,
    NoTreeError,
    best_tree_size,
    forecasts,
    plain_step,
    pooled_curve,
    tree_size,
)


@pytest.fixture(scope="module")
def found() -> dict:
    return {one.candidate.name: one for one in forecasts(measured(), WORKLOADS, LEVELS)}


def test_every_candidate_of_the_engine_has_one(found: dict) -> None:
    assert list(found) == [SUFFIX, DRAFT_MODEL, CASCADE]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [SUFFIX, DRAFT_MODEL])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_it_is_what_acceptance_and_costs_come_to(found: dict, name: str, level: int, tokens: int) -> None:
    prediction = found[name].all[level][tokens]
    fixed, token = DRAFTING[name]
    step = cheap(level * (1 + tokens)) + fixed + tokens * token
    per_step = expected_tokens(ALPHA[name], tokens)
    assert prediction.tokens == tokens
    assert prediction.step_seconds == pytest.approx(step, rel=0.01)
    assert prediction.tokens_per_step == pytest.approx(per_step, rel=0.01)
    plain = 65 * cheap(level) + level * PROMPT
    assert prediction.speedup == pytest.approx(plain / ((1 + 64 / per_step) * step + level * PROMPT), rel=0.01)
    assert prediction.ttft == pytest.approx(step + PROMPT, rel=0.01)


def test_requests_with_a_schema_are_as_long_as_they_were() -> None:
    """Half as long as they may be, so that prompts take more of the time, and drafts gain less."""
    usually, longest = (tuple(replace(one, num_tokens=n) for one in WORKLOADS) for n in (1 + STEPS, 2 * STEPS))
    structured = tuple(replace(workload, schemas=("{}",) * len(workload.texts)) for workload in longest)
    usual, long, ended = (
        {one.candidate.name: one for one in forecasts(measured(), workloads, LEVELS)}[DRAFT_MODEL].best[1].speedup
        for workloads in (usually, longest, structured)
    )
    assert ended == pytest.approx(usual)
    assert ended < long


def test_the_best_is_the_best_of_all(found: dict) -> None:
    for one in found.values():
        for level in LEVELS:
            assert one.best[level] == max(one.all[level], key=lambda prediction: prediction.speedup)
    draft = found[DRAFT_MODEL]
    assert draft.tokens == 4
    assert draft.score == pytest.approx((draft.best[1].speedup * draft.best[8].speedup) ** 0.5)


def test_where_verifying_is_expensive_nothing_is_drafted() -> None:
    for one in forecasts(measured(verify=expensive), WORKLOADS, LEVELS):
        assert one.tokens == 0
        assert one.score == 1


def test_jobs_too_short_for_whole_batches_are_said() -> None:
    part = measured()
    with pytest.raises(UserError, match="no step had 4 requests at once; allowed: more --output-tokens"):
        plain_step(part.of(NONE), 4)
    without = MeasuredCandidate(part.engine, tuple(part.of(NONE)), part.first_tokens)
    with pytest.raises(UserError, match="no step of suffix and draft_model had 8 requests"):
        pooled_curve(without, 8)
    with pytest.raises(UserError, match="no request joined 7 others"):
        list(forecasts(MeasuredCandidate(part.engine, part.samples), WORKLOADS, LEVELS))


def test_a_curve_begins_with_the_step_without_drafts() -> None:
    curve = pooled_curve(measured(), 8)
    assert curve.tokens == (8, 16, 24, 40)
    assert curve.seconds == pytest.approx([cheap(tokens) for tokens in curve.tokens])


ACCURACY = ((0.5, 0.3), (0.4, 0.3))
FLAT, STEEP = StepCurve((1, 9), (1.0, 1.0001)), StepCurve((1, 9), (1.0, 9.0))


def chained(tokens_per_step: float = 1.7) -> Chained:
    return Chained(1.0, ACCURACY, {}, 2, tokens_per_step)


def test_where_verifying_is_free_it_is_as_large_as_allowed_and_where_it_is_expensive_small() -> None:
    assert best_tree_size([chained()], {1: FLAT}, 5) == 5
    assert best_tree_size([chained()], {1: STEEP}, 5) == 1
    # 1.5, 1.8, 2 tokens, and less for each further one.
    assert best_tree_size([chained()], {1: StepCurve((1, 2, 3, 4, 9), (1.0, 1.0, 1.0, 1.3, 9.0))}, 5) == 2


def test_what_the_heads_promise_is_scaled_by_what_their_chain_does() -> None:
    # They promise 0.5 + 0.2 accepted tokens of the chain.
    assert chained(1.7).expected([(0,), (1,)]) == pytest.approx(1.8)
    assert chained(1.35).expected([(0,), (1,)]) == pytest.approx(1.4)


def parts(verify):
    folder = str(model_path("medusa"))
    heads = Heads(folder, read_heads_config(folder))
    engine = chain_engines(None, heads, 8)[-1]
    return heads.config, measured(engine, verify=verify, alpha={"medusa": 0.6})


def test_the_bundled_heads_have_trees_where_verifying_is_cheap() -> None:
    config, part = parts(cheap)
    assert 2 < tree_size(config, part, WORKLOADS, LEVELS, 8) <= 8


def test_where_a_chain_is_best_no_tree_is_measured() -> None:
    config, part = parts(expensive)
    with pytest.raises(NoTreeError, match=r"the best is a chain of 1"):
        tree_size(config, part, WORKLOADS, LEVELS, 8)


def test_heads_that_nobody_measured_have_no_tree() -> None:
    _, part = parts(cheap)
    with pytest.raises(NoTreeError, match="do not say how accurate they are"):
        tree_size(HeadsConfig(4, 1, 256, 2048), part, WORKLOADS, LEVELS, 8)
