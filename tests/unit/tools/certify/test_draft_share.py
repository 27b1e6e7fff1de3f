"""The bet that draft tokens are output too often or too seldom, and the smallest fault that it finds."""

import math
from collections import Counter

import numpy as np
import pytest

from vllm_spec_tools.certify.always_valid import p_value
from vllm_spec_tools.certify.draft_share import DraftShare
from vllm_spec_tools.certify.power import FAULTS, found_share, smallest_fault
from vllm_spec_tools.certify.target_probabilities import Floats, Row
from vllm_spec_tools.engines.jobs import Tokens

PROMPT: Tokens = (9,)
PREFIX: Tokens = (1, 2)
P, DRAFTS = np.array([0.5, 0.3, 0.2]), Counter({1: 6, 2: 2})
Rows = dict[Tokens, dict[Tokens, Row]]
ROWS: Rows = {PROMPT: {PREFIX: Row(np.arange(3), P, 0.0)}}
# One draft token per prefix, of a probability between 0.3 and 0.7.
PREFIXES: list[Tokens] = [(i,) for i in range(20)]


def test_expectation_over_all_outcomes_is_1_whatever_was_drafted_before() -> None:
    """Two rounds of two tokens, the second of which knows the first one's drafts."""
    total = 0.0
    for outcome in np.ndindex(3, 3, 3, 3):
        test = DraftShare()
        test.add({}, {(PROMPT, PREFIX): DRAFTS}, ROWS)
        for tokens in (outcome[:2], outcome[2:]):
            # What is drafted depends on the tokens.
            test.add({(PROMPT, PREFIX): Counter(tokens)}, {(PROMPT, PREFIX): Counter({tokens[0]: 3})}, ROWS)
        total += math.prod(P[list(outcome)]) * math.exp(test.log_e)
    assert total == pytest.approx(1)


def test_nothing_is_bet_where_no_draft_or_no_probability_is_known() -> None:
    test = DraftShare()
    test.add({(PROMPT, PREFIX): Counter({1: 50})}, {(PROMPT, (7,)): DRAFTS}, ROWS)
    test.add({(PROMPT, (7,)): Counter({1: 50})}, {(PROMPT, PREFIX): Counter({5: 3})}, ROWS)
    test.add({(PROMPT, PREFIX): Counter({1: 50})}, {}, ROWS)
    assert (test.log_e, test.cells) == (0, [])


def rounds(rng: np.random.Generator, size: int, change: float) -> DraftShare:
    """Six rounds at prefixes with a certain draft, token 0; `change` is the share of drafts that is not verified.

    Below 0 it is the share that is rejected although it should have been accepted.
    """
    rows: Rows = {PROMPT: {}}
    test, laws = DraftShare(), dict[Tokens, Floats]()
    for prefix, p in zip(PREFIXES, np.linspace(0.3, 0.7, len(PREFIXES)), strict=True):
        rows[PROMPT][prefix] = Row(np.arange(2), np.array([p, 1 - p]), 0.0)
        changed = p + change * (1 - p) if change > 0 else p * (1 + change)
        laws[prefix] = np.array([changed, 1 - changed])
    for _ in range(6):
        outputs = {(PROMPT, prefix): Counter(rng.choice(2, size, p=law).tolist()) for prefix, law in laws.items()}
        test.add(outputs, {(PROMPT, prefix): Counter({0: size}) for prefix in laws}, rows)
    return test


@pytest.mark.statistical
def test_false_alarms_are_below_their_rate() -> None:
    """Seed 0. 400 runs at alpha 5%: at most 35 alarms, false-alarm rate below 1e-3."""
    rng = np.random.default_rng(0)
    alarms = sum(p_value(rounds(rng, 5, 0.0).log_e) <= 0.05 for _ in range(400))
    print(f"{alarms} of 400")
    assert alarms <= 35


@pytest.mark.statistical
def test_drafts_that_are_accepted_too_often_or_too_seldom_are_found() -> None:
    """Seed 0. 2,400 outputs with a change of 20%: found at 1e-5 in all of 50 runs."""
    rng = np.random.default_rng(0)
    for change in (0.2, -0.2):
        assert all(p_value(rounds(rng, 20, change).log_e) < 1e-5 for _ in range(50))


@pytest.mark.statistical
def test_the_named_fault_is_found_in_95_of_100_and_a_smaller_one_is_not() -> None:
    """Seed 0. 1,200 outputs, 200 runs each: at least 182 are found (false-alarm rate below 1e-2 at 95%)."""
    rng, needed = np.random.default_rng(0), math.log(1e5)
    exact = rounds(rng, 10, 0.0)
    fault = smallest_fault(exact.cells, exact.drafts, needed)
    assert fault is not None
    smaller = FAULTS[FAULTS.index(fault) - 2]
    found, few = (sum(rounds(rng, 10, each).log_e > needed for _ in range(200)) for each in (fault, smaller))
    print(f"{fault:.1%} in {found} of 200, {smaller:.1%} in {few}")
    assert found >= 182
    assert few < 150
    assert found_share(exact.cells, exact.drafts, needed, smaller) < 0.95


def test_a_fault_that_moves_nothing_is_never_named() -> None:
    """The draft token is the only possible one; and there is nothing to look at."""
    rows: Rows = {PROMPT: {PREFIX: Row(np.arange(1), np.ones(1), 0.0)}}
    test = DraftShare()
    for _ in range(3):
        test.add({(PROMPT, PREFIX): Counter({0: 500})}, {(PROMPT, PREFIX): Counter({0: 500})}, rows)
    assert smallest_fault(test.cells, test.drafts, math.log(1e5)) is None
    assert smallest_fault([], {}, 1.0) is None
