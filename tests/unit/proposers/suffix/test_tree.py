"""The suffix tree and its drafts against a search of the whole text."""

import numpy as np
import pytest

from tests.unit.proposers.suffix import oracle
from vllm_spec_plugin.proposers.suffix.text_tree import TextTree

VOCAB_SIZE = 10
K = 7


def int32(tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def tree_of(tokens) -> TextTree:
    made = TextTree(VOCAB_SIZE)
    made.extend(int32(tokens))
    return made


def random_texts(seed: int, count: int, most: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, rng.integers(1, 6), rng.integers(2, most)).tolist() for _ in range(count)]


@pytest.mark.parametrize("least", [0.0, 0.2, 0.5])
def test_drafts_are_those_of_a_search(least: float) -> None:
    """200 texts of 1 to 5 different tokens, seed 1, at each length."""
    for text in random_texts(1, 200, 40):
        made = TextTree(VOCAB_SIZE)
        for end, token in enumerate(text, 1):
            made.extend(int32([token]))
            assert made.num_matched == oracle.longest_match(text[:end])
            if made.num_matched:
                draft = made.draft_after(*made.match_end(), made, K, least)
                assert draft == oracle.continuation(text[:end], K, least), text[:end]


def test_a_text_taken_in_at_once_drafts_as_one_that_grew() -> None:
    """Arrays grow in the middle of a token's leaves too: 30 texts of up to 3,000 tokens, seed 2."""
    rng = np.random.default_rng(2)
    for text in random_texts(2, 30, 3000):
        grown, at = TextTree(VOCAB_SIZE), 0
        while at < len(text):
            step = int(rng.integers(1, 60))
            grown.extend(int32(text[at : at + step]))
            at += step
        whole = tree_of(text)
        assert grown.text.tolist() == whole.text.tolist() == text
        assert grown.num_matched == whole.num_matched
        assert grown.draft_after(*grown.match_end(), grown, K, 0) == whole.draft_after(*whole.match_end(), whole, K, 0)


def test_long_runs_of_one_token_are_matched_whole() -> None:
    """Their nodes lie below each other: counting a leaf in all of them would take hours."""
    text = np.zeros(100_000, np.int32)
    text[50_000] = 1
    made = tree_of(text)
    assert made.num_matched == 49_999
    assert made.draft_after(*made.match_end(), made, 3, 0) == [1, 0, 0]


@pytest.mark.parametrize(("different", "most"), [(2, 66), (2000, 45), (30_000, 45)])
def test_memory_per_token_is_as_documented(different: int, most: int) -> None:
    """Random tokens, seed 4: two different ones are the worst case of 1 node and 2 edges per token."""
    rng = np.random.default_rng(4)
    made = TextTree(30_000)
    made.extend(rng.integers(0, different, 40_000).astype(np.int32))
    for _ in range(200):
        made.extend(rng.integers(0, different, 5).astype(np.int32))
    assert made.num_bytes <= most * made.num_tokens
