"""With temperature, the output is distributed as the target's, whatever is drafted."""

from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    CONFIDENT,
    DRAFT_MODEL,
    DRAFT_MODEL_OPTIMAL,
    FREQUENCY,
    LOOKUP,
    MEDUSA,
    MEDUSA_TREE,
    MEDUSA_TREE_DRAWN,
    MULTI_DRAFT,
    SUFFIX_DRAWN,
    Arms,
    Engine,
)
from tests.engine.exact import Reference
from tests.engine.samples import Plan, Samples, exact_tests, homogeneity_tests, impossible, sample
from tests.sizes import is_full

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

PLAIN = Engine()
SPECULATING = {
    "lookup": Engine(config=LOOKUP),
    "frequency": Engine(config=FREQUENCY),
    "suffix_drawn": Engine(config=SUFFIX_DRAWN),
    "draft_model": Engine(config=DRAFT_MODEL),
    "medusa_tree_drawn": Engine(config=MEDUSA_TREE_DRAWN),
    "multi_draft": Engine(config=MULTI_DRAFT),
    "cascade": Engine(config=CASCADE),
}
if is_full():
    # Nothing in them that the others have not.
    SPECULATING |= {
        "draft_model_confident": Engine(config=CONFIDENT),
        "draft_model_optimal": Engine(config=DRAFT_MODEL_OPTIMAL),
        "medusa": Engine(config=MEDUSA),
        "medusa_tree": Engine(config=MEDUSA_TREE),
    }
FALSE_ALARMS = 1e-3
# 7 settings, 4 prompts, 3 positions; twelve engines against exact probabilities, eleven against the plain one.
NUM_TESTS = 7 * 4 * 3 * (12 + 11)


@pytest.fixture(scope="module")
def plan(reference: Reference, full: bool) -> Plan:
    prompts = texts.repetitive(reference)
    logits = reference.logits(prompts[0])[-1]
    likely = logits.topk(4).indices.tolist()
    settings: dict[str, dict[str, Any]] = {
        "temperature 1": {},
        "top_k": {"top_k": 20},
        "top_p": {"top_p": 0.9},
        "min_p": {"min_p": 0.05},
        "repetition_penalty": {"repetition_penalty": 1.3},
        "logit_bias": {
            "logit_bias": {likely[0]: -2.0, likely[1]: 2.0, likely[3]: 2.0, prompts[1][-1]: 2.0, prompts[3][-1]: -2.0}
        },
        "combined": {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3, "top_p": 0.95},
    }
    return Plan(
        {name: {"temperature": 1.0} | params for name, params in settings.items()}, prompts, 2000 if full else 500
    )


@pytest.fixture(scope="module", params=SPECULATING)
def speculating(request: pytest.FixtureRequest, arms: Arms, plan: Plan) -> Samples:
    samples, result = sample(arms, SPECULATING[request.param], plan)
    assert min(result.accepted, result.rejected) > plan.size
    return samples


def assert_plausible(tests: dict[Any, Any]) -> None:
    """No test's p-value is below the share of `FALSE_ALARMS` that it has."""
    p_values = {key: test.p_value for key, test in tests.items()}
    least = min(p_values, key=lambda key: p_values[key])
    print(f"{len(p_values)} tests, least p-values {sorted(p_values.values())[:3]}, the first of {least[0]}, {least[2]}")
    assert p_values[least] > FALSE_ALARMS / NUM_TESTS, f"{least}: {tests[least]}"


def test_output_without_speculation_has_the_exact_distribution(arms: Arms, reference: Reference, plan: Plan) -> None:
    """The checks agree with vLLM's own sampler.

    Seed 0. 7 settings, 4 prompts, 500 continuations each (full: 2,000), 3 tokens. False-alarm rate of
    this file's chi-square tests together: 1e-3, over 1,764 tests.
    """
    samples, _ = sample(arms, PLAIN, plan)
    assert not impossible(reference, plan.settings, samples)
    assert_plausible(exact_tests(reference, plan.settings, samples))


def test_output_with_speculation_has_the_exact_distribution(
    speculating: Samples, reference: Reference, plan: Plan
) -> None:
    """Tokens 1, 2 given 1, and 3 given 1 and 2, against a transformers forward pass.

    Seed 0. 7 settings, 4 prompts, 500 continuations each (full: 2,000), 3 tokens. False-alarm rate of
    this file's chi-square tests together: 1e-3, over 1,764 tests.
    """
    assert_plausible(exact_tests(reference, plan.settings, speculating))


def test_speculation_never_outputs_a_token_that_the_parameters_exclude(
    speculating: Samples, reference: Reference, plan: Plan
) -> None:
    """Tokens that top-k, top-p or min-p leave no probability.

    Seed 0. 7 settings, 4 prompts, 500 continuations each (full: 2,000), 3 tokens. False-alarm rate 0:
    such a token is impossible; thresholds are given 1e-3 of slack, for rounding.
    """
    assert not impossible(reference, plan.settings, speculating)


def test_output_is_distributed_as_without_speculation(speculating: Samples, arms: Arms, plan: Plan) -> None:
    """Two-sample chi-square tests of the same positions, with and without speculation.

    Seed 0. 7 settings, 4 prompts, 500 continuations each (full: 2,000), 3 tokens. False-alarm rate of
    this file's chi-square tests together: 1e-3, over 1,764 tests.
    """
    plain, _ = sample(arms, PLAIN, plan)
    assert_plausible(homogeneity_tests(speculating, plain))
