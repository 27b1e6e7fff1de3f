"""The checks of test_sampling.py would notice a scorer that is wrong."""

from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import (
    DISTANT,
    FREQUENCY,
    LOOKUP,
    MEDUSA_TREE,
    MEDUSA_TREE_DRAWN,
    MULTI_DRAFT_DISTANT,
    Arms,
    Engine,
)
from tests.engine.exact import Reference
from tests.engine.samples import Plan, exact_tests, sample
from tests.engine.test_sampling import FALSE_ALARMS, NUM_TESTS

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

PARAMS: dict[str, dict[str, Any]] = {
    "accept_everything": {"temperature": 1.0},
    "recover_from_p": {"temperature": 1.0},
    "block_ends_at_first_failure": {"temperature": 1.0},
    "ignore_temperature": {"temperature": 0.7},
    "siblings_from_p": {"temperature": 1.0},
}

PROPOSERS = {
    "lookup": Engine(config=LOOKUP),
    "frequency": Engine(config=FREQUENCY),
    "draft_model": Engine(config=DISTANT),
    "medusa_tree": Engine(config=MEDUSA_TREE),
    "medusa_tree_drawn": Engine(config=MEDUSA_TREE_DRAWN),
    "multi_draft": Engine(config=MULTI_DRAFT_DISTANT),
}
CHAINS, TREES = ("lookup", "frequency", "draft_model"), ("medusa_tree", "medusa_tree_drawn", "multi_draft")
CASES = [
    *[
        (name, proposer)
        for name in ("accept_everything", "recover_from_p", "ignore_temperature")
        for proposer in CHAINS
    ],
    ("block_ends_at_first_failure", "draft_model"),
    *[("siblings_from_p", proposer) for proposer in TREES],
]


@pytest.mark.parametrize(("sabotage", "proposer"), CASES)
def test_sabotaged_scorer_is_noticed(
    sabotage: str, proposer: str, arms: Arms, reference: Reference, full: bool
) -> None:
    """A sound scorer passes the exact test, a sabotaged one has p-values below 1e-6 and below its threshold.

    Seed 0. 4 prompts, 1,000 continuations each (full: 2,000), 3 tokens. False-alarm rate of the sound
    run: 12 tests of 1e-3 / 1,764 each.
    """
    settings = {sabotage: PARAMS[sabotage]}
    plan = Plan(settings, texts.repetitive(reference), 2000 if full else 1000)
    threshold = min(1e-6, FALSE_ALARMS / NUM_TESTS)

    def least_p_values(name: str) -> list[float]:
        samples, _ = sample(arms, PROPOSERS[proposer], plan, name)
        return sorted(test.p_value for test in exact_tests(reference, settings, samples).values())[:3]

    sound, sabotaged = least_p_values(""), least_p_values(sabotage)
    print(f"least p-values: sound {sound}, sabotaged {sabotaged}")
    assert sabotaged[0] < threshold < sound[0]
