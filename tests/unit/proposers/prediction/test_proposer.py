"""Drafts of requests that predict their output."""

import numpy as np

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.prediction.proposer import PredictionProposer

PROMPT = [1, 2, 3]


def view(output: list[int], prediction: list[int] | None, name: str = "a", count: int = 4) -> RequestView:
    text = np.array([*PROMPT, *output], np.int32)
    return RequestView(
        name, text, count, np.zeros(count), num_prompt_tokens=len(PROMPT), prediction=prediction, point_mass=False
    )


def test_each_request_has_its_own_prediction() -> None:
    proposer = PredictionProposer(100)
    drafts = proposer.propose([view([10], [10, 11, 12], "a"), view([20], [20, 21], "b"), view([10], None, "c")])
    assert drafts == [Draft([11, 12]), Draft([21]), NO_DRAFT]


def test_it_follows_and_starts_again_when_the_text_did() -> None:
    proposer, prediction = PredictionProposer(100), list(range(10, 50))
    assert proposer.propose([view([10], prediction)]) == [Draft([11, 12, 13, 14])]
    assert proposer.propose([view([10, 11, 12], prediction)]) == [Draft([13, 14, 15, 16])]
    proposer.forget("a")
    assert proposer.propose([view([10, 11], prediction)]) == [Draft([12, 13, 14, 15])]
    # Another request of the same name, whose end was not told.
    assert proposer.propose([view([10], prediction)]) == [Draft([11, 12, 13, 14])]


def test_tokens_beyond_the_vocabulary_end_a_draft() -> None:
    assert PredictionProposer(12).propose([view([], [10, 11, 12, 5])]) == [Draft([10, 11])]
