"""With temperature, the output is distributed as the target's, whatever is drafted."""

from dataclasses import replace
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL,
    DRAFT_MODEL_OPTIMAL,
    EAGLE3,
    EAGLE3_CASCADE,
    FREQUENCY,
    LOOKUP,
    MEDUSA,
    MEDUSA_TREE,
    MEDUSA_TREE_DRAWN,
    SUFFIX_DRAWN,
    Arms,
    Engine,
)
from tests.engine.exact import Reference
from tests.engine.samples import Plan, exact_tests, impossible, sample, tree_sizes
from tests.sizes import is_full

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

ENGINES = {
    "suffix_drawn": Engine(config=SUFFIX_DRAWN),
    "eagle3_cascade": Engine(config=EAGLE3_CASCADE),
    "medusa_tree_drawn": Engine(config=MEDUSA_TREE_DRAWN, random_lengths=True),
    "cascade": Engine(config=CASCADE),
}
if is_full():
    # Nothing in them that the others have not.
    ENGINES |= {
        "plain": Engine(),
        "lookup": Engine(config=LOOKUP),
        "draft_model": Engine(config=DRAFT_MODEL),
        "frequency": Engine(config=FREQUENCY),
        "eagle3": Engine(config=EAGLE3),
        # With few requests, as the policy begins with the guess that drafts of many cost too much.
        "draft_model_optimal": Engine(config=DRAFT_MODEL_OPTIMAL, max_num_seqs=16),
        "medusa": Engine(config=MEDUSA),
        "medusa_tree": Engine(config=MEDUSA_TREE),
    }
FALSE_ALARMS = 1e-3
# 7 settings, 4 prompts, 3 positions, twelve engines at most.
NUM_TESTS = 7 * 4 * 3 * 12


# Of other engines than the cascade, where sizes are not full: all that an engine samples goes through one scorer.
FEW = ("temperature 1", "min_p", "combined")


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
        {name: {"temperature": 1.0} | params for name, params in settings.items()}, prompts, 1000 if full else 250
    )


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_sampled_output_has_the_exact_distribution(
    engine: Engine, arms: Arms, reference: Reference, plan: Plan, full: bool
) -> None:
    """Tokens 1, 2 given 1, and 3 given 1 and 2, against a transformers forward pass; trees are of random sizes.

    Seed 0. 7 settings (3 with engines other than the cascade; full: 7), 4 prompts, 250 continuations each (full:
    1,000), 3 tokens. False-alarm rate of this file's chi-square tests together: 1e-3, over 1,092 tests at most. No
    token may be output that top-k, top-p or min-p exclude, thresholds given 1e-3 of slack for rounding.
    """
    if not full and engine != ENGINES["cascade"]:
        plan = replace(plan, settings={name: plan.settings[name] for name in FEW})
    samples, result = sample(arms, engine, plan)
    assert not engine.config or min(result.accepted, result.rejected) > plan.size
    assert not engine.random_lengths or {0, 1, 2} <= set.union(*tree_sizes(result).values())
    assert not impossible(reference, plan.settings, samples)
    tests = exact_tests(reference, plan.settings, samples)
    least = min(tests, key=lambda key: tests[key].p_value)
    print(f"{len(tests)} tests, least p-value {tests[least].p_value:.2g}, of {least[0]}, token {least[2] + 1}")
    assert tests[least].p_value > FALSE_ALARMS / NUM_TESTS, f"{least}: {tests[least]}"
