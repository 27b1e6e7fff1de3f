"""With temperature, the output is distributed as the target's, whatever is drafted; a wrong scorer would be noticed."""

from dataclasses import replace
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL,
    EAGLE3_CASCADE,
    MEDUSA_TREE_DRAWN,
    SUFFIX,
    Arms,
    Engine,
)
from tests.engine.exact import Reference
from tests.engine.samples import Plan, exact_tests, impossible, sample, tree_sizes
from tests.engine.ways import VLLMS_EAGLE3, after_texts, vllms
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.sizes import is_full

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

ENGINES = {
    "suffix": Engine(config=SUFFIX),
    "eagle3_cascade": Engine(config=EAGLE3_CASCADE),
    "medusa_tree_drawn": Engine(config=MEDUSA_TREE_DRAWN, random_lengths=True),
    "cascade": Engine(config=CASCADE),
}
FALSE_ALARMS = 1e-3
# 7 settings, 4 prompts, 3 positions, eleven engines at most.
NUM_TESTS = 7 * 4 * 3 * 11


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


BY_VLLM = {"vLLM's draft_model": Engine(config=native(STOCK_DRAFT_MODEL), random_lengths=True)}
if is_full():
    BY_VLLM |= {
        "vLLM's eagle3": Engine(config=native(VLLMS_EAGLE3), random_lengths=True),
        "texts, vLLM's draft_model": Engine(config=after_texts(vllms(STOCK_DRAFT_MODEL)), random_lengths=True),
    }


@pytest.mark.parametrize("name", BY_VLLM)
def test_so_it_has_where_vllm_verifies(name: str, arms: Arms, reference: Reference, plan: Plan) -> None:
    """On a CPU, where vLLM's sampler alone is wrong (`test_stock.py`).

    Seed 0. 3 settings, 4 prompts, 3 positions, 250 continuations each (full: 1,000). False-alarm rate of all of this
    test's chi-square tests together: 1e-3.
    """
    plan = replace(plan, settings={name: plan.settings[name] for name in ("temperature 1", "top_k", "top_p")})
    samples, result = sample(arms, BY_VLLM[name], plan)
    assert min(result.accepted, result.rejected) > plan.size
    assert not impossible(reference, plan.settings, samples)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / (len(tests) * len(BY_VLLM))


STARVED = {"draft_model": DRAFT_MODEL}
if is_full():
    STARVED["medusa_tree_drawn"] = MEDUSA_TREE_DRAWN
AT_1: dict[str, dict[str, Any]] = {"temperature 1": {"temperature": 1.0}}


@pytest.mark.parametrize("config", STARVED.values(), ids=STARVED)
def test_output_keeps_its_distribution_when_drafts_wait(
    config: str, arms: Arms, reference: Reference, full: bool
) -> None:
    """Drawn drafts, shortened, or verified steps after they were drawn: q must still be theirs.

    64 requests with 4 drafts or more each want at least 320 tokens a step, and have 96. Seed 0. 4 prompts, 500
    continuations each (full: 2,000), 3 tokens. False-alarm rate: 1e-3.
    """
    plan = Plan(AT_1, texts.repetitive(reference), 2000 if full else 500)
    samples, result = sample(arms, Engine(config=config, max_num_seqs=64, max_num_batched_tokens=96), plan)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(result.accepted, result.rejected) > plan.size
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)
