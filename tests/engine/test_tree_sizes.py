"""Trees of any size change no output, and the scheduler is told which of their nodes were accepted."""

from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import MEDUSA_TREE_DRAWN, MULTI_DRAFT, MULTI_DRAFT_DISTANT, TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import Job, Request, Result
from tests.engine.samples import Plan, exact_tests, impossible, sample

pytestmark = pytest.mark.engine

NUM_TOKENS = 48
FALSE_ALARMS = 1e-3
# 3 settings, 2 prompts, 3 positions, two engines.
NUM_TESTS = 3 * 2 * 3 * 2


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 32, 400)


def sizes(result: Result) -> dict[int, set[int]]:
    """By tokens of a draft with branches, how many of them were accepted."""
    found: dict[int, set[int]] = {}
    for key in result.notes["lengths"]:
        drafted, accepted = map(int, key.split())
        found.setdefault(drafted, set()).add(accepted)
    return found


@pytest.mark.parametrize("config", [MEDUSA_TREE_DRAWN, MULTI_DRAFT], ids=["medusa_tree_drawn", "multi_draft"])
@pytest.mark.parametrize("engine", [{}, TIGHT], ids=["roomy", "tight"])
def test_greedy_output_is_that_without_speculation(
    config: str, engine: dict[str, Any], arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Where memory is tight, drafts are cut by the scheduler, and lack blocks for branches."""
    params = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    requests = [Request(prompt, params) for prompt in prompts]
    result = arms.run(Engine(config=config, check=True, random_lengths=True, **engine), Job(requests))
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), Job(requests)))
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    found = sizes(result)
    assert len(found) > (3 if config == MEDUSA_TREE_DRAWN else 5)
    assert {0, 1, 2} <= set.union(*found.values())


@pytest.mark.statistical
@pytest.mark.parametrize("config", [MEDUSA_TREE_DRAWN, MULTI_DRAFT_DISTANT], ids=["medusa_tree_drawn", "multi_draft"])
def test_sampled_output_has_the_exact_distribution(config: str, arms: Arms, reference: Reference, full: bool) -> None:
    """Tokens 1, 2 given 1, and 3 given 1 and 2, against a transformers forward pass.

    Seed 0. 3 settings, 2 prompts, 1,000 continuations each (full: 4,000), 3 tokens. False-alarm rate of this file's
    chi-square tests together: 1e-3, over 36 tests.
    """
    settings = {
        "temperature 1": {"temperature": 1.0},
        "top_k": {"temperature": 1.0, "top_k": 20},
        "combined": {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3, "top_p": 0.95},
    }
    plan = Plan(settings, texts.repetitive(reference)[:2], 4000 if full else 1000)
    samples, result = sample(arms, Engine(config=config, random_lengths=True), plan)
    assert min(result.accepted, result.rejected) > plan.size
    assert {0, 1, 2} <= set.union(*sizes(result).values())
    assert not impossible(reference, plan.settings, samples)
    p_values = {key: test.p_value for key, test in exact_tests(reference, plan.settings, samples).items()}
    least = min(p_values, key=lambda key: p_values[key])
    print(f"{len(p_values)} tests, least p-value {p_values[least]:.2g}")
    assert p_values[least] > FALSE_ALARMS / NUM_TESTS, f"{least}: {p_values[least]}"
