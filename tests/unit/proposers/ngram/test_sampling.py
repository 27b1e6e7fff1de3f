"""Sampled drafts against the q they come with."""

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.ngram.proposer import NgramProposer

VOCAB_SIZE = 200
K = 4


def zipf_text(seed: int, num_tokens: int) -> np.ndarray:
    return np.minimum(np.random.default_rng(seed).zipf(1.3, num_tokens), VOCAB_SIZE).astype(np.int32) - 1


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_extreme_uniforms_draw_the_first_and_the_last_of_a_row(uniform):
    proposer = NgramProposer("frequency", 1, 1, 500, "sample", VOCAB_SIZE)
    (draft,) = proposer.propose([RequestView("a", np.array([1, 1, 2], np.int32), 1, np.array([uniform]))])
    assert draft.token_ids == ([1] if uniform == 0 else [2])


def test_each_draft_uses_its_own_uniform():
    proposer = NgramProposer("frequency", 1, 1, 500, "sample", VOCAB_SIZE)
    text = np.array([1, 2], np.int32)
    (draft,) = proposer.propose([RequestView("a", text, 4, np.array([0.1, 0.9, 0.9, 0.1]))])
    assert draft.token_ids == [2, 1, 1, 2]


def test_point_mass_is_greedy_and_ignores_uniforms():
    sampling = NgramProposer("frequency", 1, 2, 500, "sample", VOCAB_SIZE)
    greedy = NgramProposer("frequency", 1, 2, 500, "greedy", VOCAB_SIZE)
    text = zipf_text(14, 400)
    for uniform in (0.0, 0.99):
        view = RequestView("a", text, K, np.full(K, uniform), point_mass=True)
        (draft,) = sampling.propose([view])
        assert draft.probs is None
        assert draft == greedy.propose([view])[0]
