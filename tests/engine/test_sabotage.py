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
    Arms,
    Engine,
)
from tests.engine.exact import Reference
from tests.engine.samples import Plan, exact_tests, sample
from tests.engine.test_sampling import FALSE_ALARMS, NUM_TESTS
from tests.sizes import is_full

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

PROPOSERS = {
    "lookup": Engine(config=LOOKUP),
    "frequency": Engine(config=FREQUENCY),
    "draft_model": Engine(config=DISTANT),
    "medusa_tree": Engine(config=MEDUSA_TREE),
    "medusa_tree_drawn": Engine(config=MEDUSA_TREE_DRAWN),
}
# test_certify.py has the others.
CASES = [
    ("block_ends_at_first_failure", "draft_model"),
    ("siblings_from_p", "medusa_tree_drawn"),
]
if is_full():
    CASES.append(("siblings_from_p", "medusa_tree"))
    SCORERS, CHAINS = (
        ("accept_everything", "recover_from_p", "ignore_temperature"),
        ("lookup", "frequency", "draft_model"),
    )
    CASES += [(name, proposer) for name in SCORERS for proposer in CHAINS]
# Continuations of each prompt; the more only where fewer do not show the sabotage.
SIZES = (250, 1000, 2000) if is_full() else (250, 1000)


@pytest.mark.parametrize(("sabotage", "proposer"), CASES)
def test_sabotaged_scorer_is_noticed(sabotage: str, proposer: str, arms: Arms, reference: Reference) -> None:
    """A sabotaged scorer has p-values below 1e-6 and below the threshold of test_sampling.py, a sound one has not.

    Seed 0. 4 prompts, 250 continuations each, then 1,000 (full: and 2,000) if those did not show it, 3 tokens.
    False-alarm rate of the sound run, which has as many: 12 tests of 1e-3 / 1,092 each.
    """
    settings: dict[str, dict[str, Any]] = {sabotage: {"temperature": 0.7 if sabotage == "ignore_temperature" else 1.0}}
    threshold = min(1e-6, FALSE_ALARMS / NUM_TESTS)

    def least_p_value(name: str, size: int) -> float:
        plan = Plan(settings, texts.repetitive(reference), size)
        samples, _ = sample(arms, PROPOSERS[proposer], plan, name)
        return min(test.p_value for test in exact_tests(reference, settings, samples).values())

    for size in SIZES:
        sabotaged = least_p_value(sabotage, size)
        print(f"{size} continuations, sabotaged: least p-value {sabotaged:.2g}")
        if sabotaged < threshold:
            break
    assert sabotaged < threshold < least_p_value("", size)
