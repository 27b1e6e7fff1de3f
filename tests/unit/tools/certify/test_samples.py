"""Which tests a token takes part in, and how often they are wrong, on speculative decoding of a small Markov chain."""

import math
from typing import Any, cast

import numpy as np
import pytest

from tests.unit.tools.certify.markov import EXACT, MOST, PROMPT, Fault, MarkovLaw, all_outputs, decode, output
from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.samples import TokenSamples, strata
from vllm_spec_tools.certify.target_probabilities import TargetProbabilities
from vllm_spec_tools.engines.jobs import Step

LAW = cast(TargetProbabilities, MarkovLaw())
# Two tokens, one of them likelier, and drafts that differ.
TWO, DRAFTS = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([[0.5, 0.5], [0.6, 0.4]])


def sampled(
    rng: np.random.Generator, size: int, looks: int, fault: Fault = EXACT, plain: int | None = None
) -> TokenSamples:
    """Samples that are looked at so many times, after `size` outputs each."""
    samples = TokenSamples([PROMPT])
    for _ in range(size * looks if plain is None else plain):
        samples.add_plain(PROMPT, decode(rng, Fault(drafts=False)))
    for _ in range(looks):
        for _ in range(size):
            samples.add(PROMPT, decode(rng, fault), MOST)
        samples.judge(LAW, {})
    return samples


def alarms(count: int, size: int, looks: int, alpha: float, fault: Fault = EXACT) -> int:
    rng, found = np.random.default_rng(0), 0
    for _ in range(count):
        samples = sampled(rng, size, looks, fault)
        found += always_valid.p_value(max(samples.log_e, samples.log_e_two)) <= alpha / 2
    return found


@pytest.mark.statistical
def test_exact_decoding_raises_few_alarms_whatever_was_accepted() -> None:
    """Seed 0. 60 runs of 3 looks of 40 outputs, alpha 20% in all: at most 22 alarms, false-alarm rate below 1e-3."""
    found = alarms(60, 40, 3, 0.2)
    print(f"{found} alarms of 60")
    assert found <= 22


@pytest.mark.statistical
def test_wrong_state_after_a_rejection_is_found() -> None:
    """Seed 0. 10 runs of 3 looks of 150 outputs: all are found at 1e-6."""
    assert alarms(10, 150, 3, 1e-6, Fault(after_rejection=True)) == 10


@pytest.mark.parametrize("num_before", [0, 1, 3, 12])
def test_the_evidence_is_a_martingale_whatever_has_been_seen(num_before: int) -> None:
    """Exactly: over all outputs that an exact engine may give next, the expected e-value is the present one at most.

    So it is with strata and prompts that have not been seen yet, and with tokens in two strata. Pasts: seed 0.
    """
    futures = list(all_outputs(TWO, DRAFTS, 4))
    probs = [prob for prob, _ in futures]
    assert sum(probs) == pytest.approx(1)
    law = MarkovLaw(TWO)
    rng, rows = np.random.default_rng(num_before), cast(Any, {PROMPT: law, (8,): law})
    for _ in range(3):
        past = [futures[i][1] for i in rng.choice(len(futures), num_before, p=np.array(probs) / sum(probs))]

        def evidence(*more: Any, past: Any = past) -> float:
            samples = TokenSamples([PROMPT, (8,)])
            for each in [*past, *more]:
                samples.add((8,), each, 1)
                samples._end_round(rows)
            return math.exp(samples.evidence(rows))

        expected = sum(prob * evidence(each) for prob, each in futures)
        assert expected <= evidence() * (1 + 1e-9)
        # None of it is lost: strata that are not seen yet keep their share.
        assert expected == pytest.approx(evidence())


@pytest.mark.statistical
def test_the_smallest_fault_that_a_report_names_is_found_as_often_as_it_says() -> None:
    """Seed 1. 6 looks of 100 outputs; 20 runs with the fault: at least 16 are found (false-alarm rate 3e-3 at 95%)."""
    rng = np.random.default_rng(1)
    fault = sampled(rng, 100, 6, plain=0).smallest_fault(1e-4)
    assert fault is not None
    found = sum(
        always_valid.p_value(sampled(rng, 100, 6, Fault(unverified=fault), plain=0).log_e) < 1e-4 for _ in range(20)
    )
    print(f"{fault:.1%} of the draft tokens: found in {found} of 20")
    assert fault <= 0.3
    assert found >= 16


# Draft tokens that only the device knows.
FOUR = (-1,) * 4


def found(kind: str, tokens: list[int], steps: list[Step], max_accepted: int = 4) -> list[object]:
    return [
        (token.stratum[1], token.prefix, token.token_id)
        for token in strata(output(tokens, steps), max_accepted)
        if token.stratum[0] == kind
    ]


def test_only_positions_with_a_draft_are_tested_as_drafts_accepted_or_not() -> None:
    """Three steps: a prompt's, one that accepts two of three drafts, one without drafts."""
    steps = [Step(1), Step(3, (1, 2, 9)), Step(1)]
    assert found("draft", [0, 1, 2, 3, 4], steps) == [(1, (0,), 1), (2, (0, 1), 2), (3, (0, 1, 2), 3)]
    tokens = strata(output([0, 1, 2, 3, 4], steps), 4)
    drafts = [(token.draft_id, token.is_accepted) for token in tokens if token.stratum[0] == "draft"]
    assert drafts == [(1, True), (2, True), (9, False)]
    assert not list(strata(output([0, 1, 2], [Step(1), Step(1), Step(1)]), 4))


def test_the_next_step_is_tested_by_how_many_drafts_the_one_before_accepted() -> None:
    """Two accepted, then none; what follows a step without drafts is not tested."""
    steps = [Step(1), Step(3, FOUR), Step(1, FOUR), Step(1), Step(1)]
    assert found("after accepted", [1, 2, 3, 4, 5, 6, 7], steps) == [(2, (1, 2, 3, 4), 5), (0, (1, 2, 3, 4, 5), 6)]


def test_a_bonus_token_is_one_after_all_drafts_of_its_step() -> None:
    assert found("bonus after", [1, 2, 3, 4, 5, 6, 7], [Step(1), Step(3, (2, 3)), Step(3, (5, 6, 7))]) == [
        (2, (1, 2, 3), 4)
    ]
    # A tree of 8 tokens, two deep.
    assert found("bonus after", [1, 2, 3, 4], [Step(1), Step(3, 2 * FOUR)], 2) == [(2, (1, 2, 3), 4)]
    assert found("bonus after", [1, 2, 3, 4], [Step(1), Step(3, FOUR)]) == []


def test_tokens_beyond_the_end_of_the_output_are_not_tested() -> None:
    tokens = list(strata(output([1, 2, 3], [Step(1), Step(5, FOUR)]), 4))
    assert [(token.draft_id, token.is_accepted) for token in tokens] == [(2, True), (3, True)]


def test_rejected_drafts_that_only_the_device_knows_are_left_open() -> None:
    tokens = list(strata(output([1, 2, 3], [Step(1), Step(2, FOUR)]), 4))
    assert [token.draft_id for token in tokens] == [2, None]


def test_accepted_and_rejected_drafts_are_counted_apart_by_position() -> None:
    samples = TokenSamples([PROMPT])
    samples.add(PROMPT, output([0, 1, 2, 0], [Step(1), Step(2, (1, 0)), Step(1, (0,))]), 4)
    samples.judge(LAW, {})
    assert samples.tested(LAW, {}) == {
        "after accepted 1": 1,
        "draft 1 accepted": 1,
        "draft 1 rejected": 1,
        "draft 2 accepted": 0,
        "draft 2 rejected": 1,
    }
