import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.proposers.ngram import lookup
from vllm_spec_plugin.proposers.ngram.lookup import LookupIndex

from . import oracle

VOCAB_SIZE = 1000


def index_of(text: list[int], min_order: int = 1, max_order: int = 3) -> LookupIndex:
    index = LookupIndex(min_order, max_order, VOCAB_SIZE)
    index.extend(np.array(text, np.int32))
    return index


@given(
    chunks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=25),
    min_order=st.integers(1, 3),
    extra=st.integers(0, 3),
    num_draft_tokens=st.integers(1, 6),
)
@settings(max_examples=100, deadline=None)
def test_every_step_agrees_with_brute_force(chunks, min_order, extra, num_draft_tokens):
    index, text = LookupIndex(min_order, min_order + extra, VOCAB_SIZE), []
    for chunk in chunks:
        index.extend(np.array(chunk, np.int32))
        text += chunk
        assert index.draft(num_draft_tokens) == oracle.lookup(text, min_order, min_order + extra, num_draft_tokens)


def test_long_text_in_small_steps_agrees_with_one_step_and_brute_force():
    rng = np.random.default_rng(3)
    text = rng.integers(0, 30, 1500).tolist()
    stepwise = LookupIndex(2, 4, VOCAB_SIZE)
    at = 0
    while at < len(text):
        step = int(rng.integers(1, 5))
        stepwise.extend(np.array(text[at : at + step], np.int32))
        at += step
        if at % 10 == 0:
            expected = oracle.lookup(text[:at], 2, 4, 5)
            assert stepwise.draft(5) == index_of(text[:at], 2, 4).draft(5) == expected


@pytest.mark.parametrize("outside", [-1, VOCAB_SIZE])
def test_copy_stops_before_a_token_outside_the_vocabulary(outside):
    assert index_of([1, 2, 3, outside, 4, 1]).draft(4) == [2, 3]
    assert index_of([1, outside, 3, 1]).draft(4) == []
    assert index_of([outside, 3, 1, outside]).draft(1) == [3]


def test_equal_hashes_of_different_ngrams_get_different_slots():
    tokens = np.array([1, 2, 3, 1, 2], np.int32)
    tables = np.zeros((1, 8), np.int32)
    first = lookup._find_slot(tokens, tables, 0, 2, 2, 5)
    tables[0, first] = 2
    assert lookup._find_slot(tokens, tables, 0, 2, 5, 5) == first
    assert lookup._find_slot(tokens, tables, 0, 2, 3, 5) != first


def test_memory_is_bounded_by_the_text():
    rng = np.random.default_rng(4)
    index, num_orders = LookupIndex(1, 4, VOCAB_SIZE), 4
    for _ in range(300):
        index.extend(rng.integers(0, VOCAB_SIZE, 20).astype(np.int32))
        assert index.num_bytes <= max(64, index.num_tokens) * (11 * num_orders + 8)


def test_the_length_of_the_match_is_told():
    index = index_of([3, 1, 2, 7, 4, 1, 2, 8, 3, 1, 2])
    assert (index.draft(1), index.match_length) == ([7], 3)
    index.extend(np.array([9], np.int32))
    assert (index.draft(1), index.match_length) == ([], 0)
    index.extend(np.array([3], np.int32))
    assert (index.draft(1), index.match_length) == ([1], 1)


def test_a_match_that_gives_no_token_has_no_length():
    index = index_of([1, VOCAB_SIZE, 3, 1])
    assert (index.draft(4), index.match_length) == ([], 0)
