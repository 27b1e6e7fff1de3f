"""Which tests a token takes part in, and how often they are wrong, on speculative decoding of a small Markov chain."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest

from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.jobs import JobOutput, Tokens
from vllm_spec_tools.certify.samples import TokenSamples, strata
from vllm_spec_tools.certify.target_probabilities import TargetProbabilities

PROMPT = (9,)
P = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
MOST, LENGTH = 4, 7


class MarkovLaw:
    """The chain's probabilities after any prefix."""

    def __contains__(self, text: object) -> bool:
        return True

    def probabilities(self, prompt: Tokens, prefixes: Iterable[Tokens], params: Any) -> list[Any]:
        return [P[prefix[-1] if prefix else 0] for prefix in prefixes]


def decode(rng: np.random.Generator, wrong_after_rejection: bool = False) -> JobOutput:
    """One output by speculative decoding; wrong is a next step that goes on from the token that was rejected."""
    tokens, steps = [int(rng.choice(3, p=P[0]))], [1]
    context = tokens[-1]
    while len(tokens) < LENGTH:
        new: list[int] = []
        for _ in range(MOST):
            draft = int(rng.choice(3, p=Q[context]))
            if rng.random() >= P[context, draft] / Q[context, draft]:
                left = np.maximum(P[context] - Q[context], 0)
                new.append(int(rng.choice(3, p=left / left.sum())))
                context = draft if wrong_after_rejection else new[-1]
                break
            new.append(draft)
            context = draft
        else:
            new.append(int(rng.choice(3, p=P[context])))
            context = new[-1]
        new = new[: LENGTH - len(tokens)]
        tokens, steps = tokens + new, [*steps, len(new)]
    return output(tokens, steps)


def alarms(count: int, size: int, looks: int, alpha: float, **wrong: bool) -> int:
    rng, law = np.random.default_rng(0), cast(TargetProbabilities, MarkovLaw())
    found = 0
    for _ in range(count):
        plain, samples = [decode(rng) for _ in range(size * looks)], TokenSamples()
        for sample in plain:
            samples.pair(0, PROMPT, sample)
        for _ in range(looks):
            for sample in [decode(rng, **wrong) for _ in range(size)]:
                samples.add(PROMPT, sample, MOST)
                samples.pair(1, PROMPT, sample)
            samples.judge(law, {})
        found += always_valid.p_value(max(samples.log_e, samples.log_e_two)) <= alpha / 2
    return found


@pytest.mark.statistical
def test_exact_decoding_raises_few_alarms_whatever_was_accepted() -> None:
    """Seed 0. 100 runs of 3 looks of 40 outputs, alpha 20% in all: at most 33 alarms, false-alarm rate below 1e-3."""
    found = alarms(100, 40, 3, 0.2)
    print(f"{found} alarms of 100")
    assert found <= 33


@pytest.mark.statistical
def test_wrong_state_after_a_rejection_is_found() -> None:
    """Seed 0. 10 runs of 3 looks of 100 outputs: all are found at 1e-6."""
    assert alarms(10, 100, 3, 1e-6, wrong_after_rejection=True) == 10


def output(tokens: list[int], steps: list[int]) -> JobOutput:
    return JobOutput(tokens, "", "length", None, None, None, steps)


def found(kind: str, tokens: list[int], steps: list[int], max_accepted: int = 4) -> list[object]:
    return [
        (number, prefix, token)
        for (stratum, number), prefix, token in strata(output(tokens, steps), max_accepted)
        if stratum == kind
    ]


def test_every_token_up_to_the_fourth_draft_is_tested_given_all_before() -> None:
    expected = [(i, tuple(range(i)), i) for i in range(5)]
    assert found("position", list(range(7)), [1, 5, 1]) == expected


def test_the_next_step_is_tested_by_how_many_drafts_the_one_before_accepted() -> None:
    """Two accepted, then none."""
    assert found("after accepted", [1, 2, 3, 4, 5, 6], [1, 3, 1, 1]) == [(2, (1, 2, 3, 4), 5), (0, (1, 2, 3, 4, 5), 6)]


def test_a_bonus_token_is_one_after_as_many_drafts_as_can_be() -> None:
    assert found("bonus", [1, 2, 3, 4, 5, 6, 7], [1, 5, 1]) == [(4, (1, 2, 3, 4, 5), 6)]
    assert found("bonus", [1, 2, 3, 4, 5, 6, 7], [1, 4, 2]) == []
