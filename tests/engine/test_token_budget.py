"""Drafts that are cut, or that wait for their turn, because a step has too few tokens for all."""

import pytest

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, FREQUENCY, MEDUSA_TREE_DRAWN, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.samples import Plan, exact_tests, sample
from tests.sizes import is_full

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

# 64 requests with 4 drafts or more each want at least 320 tokens a step.
CONFIGS = {"draft_model": DRAFT_MODEL}
if is_full():
    CONFIGS |= {"frequency": FREQUENCY, "medusa_tree_drawn": MEDUSA_TREE_DRAWN}
FALSE_ALARMS = 1e-3


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_output_keeps_its_distribution_when_drafts_wait(
    config: str, arms: Arms, reference: Reference, full: bool
) -> None:
    """Drawn drafts, shortened, or verified steps after they were drawn: q must still be theirs.

    Chi-square tests of 3 positions after 4 prompts at temperature 1. Seed 0, 500 continuations each
    (full: 2,000), false alarm 1e-3 together.
    """
    plan = Plan({"temperature 1": {"temperature": 1.0}}, texts.repetitive(reference), 2000 if full else 500)
    starved = Engine(config=config, max_num_seqs=64, max_num_batched_tokens=96)
    samples, result = sample(arms, starved, plan)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(result.accepted, result.rejected) > plan.size
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)
