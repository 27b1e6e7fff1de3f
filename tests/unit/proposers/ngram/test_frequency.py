import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import examples
from vllm_spec_plugin.proposers.ngram import trie
from vllm_spec_plugin.proposers.ngram.frequency import FrequencyTables

from . import oracle

VOCAB_SIZE = 1000

chunked_text = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=25)


def tables_of(text: list[int], min_order: int = 1, max_order: int = 3, window: int = 100) -> FrequencyTables:
    tables = FrequencyTables(min_order, max_order, window, VOCAB_SIZE)
    tables.extend(np.array(text, np.int32))
    return tables


@given(
    chunks=chunked_text,
    min_order=st.integers(1, 3),
    extra=st.integers(0, 2),
    spare=st.integers(0, 20),
    uniforms=st.lists(st.floats(0, 1 - 2**-53), min_size=1, max_size=6),
)
@settings(max_examples=examples(80, 600), deadline=None)
def test_every_step_agrees_with_brute_force(chunks, min_order, extra, spare, uniforms):
    """Counts, greedy drafts, and sampled ones with their q."""
    max_order = min_order + extra
    window, text = max_order + spare, []
    tables = FrequencyTables(min_order, max_order, window, VOCAB_SIZE)
    for chunk in chunks:
        tables.extend(np.array(chunk, np.int32))
        text += chunk
        seen = text[-window:]
        assert min_order > 1 or tables.counts() == oracle.ngram_counts(seen, max_order)
        assert tables.draft_greedy(len(uniforms)) == oracle.frequency(seen, min_order, max_order, len(uniforms))
        chain, rows = tables.draft_sampled(np.array(uniforms))
        assert len(rows) == len(chain)
        for index, token in enumerate(chain):
            followers = oracle.ranked_followers(seen, chain[:index], min_order, max_order)
            total, width = sum(count for _, count in followers), len(followers)
            assert rows.token_ids[index, :width].tolist() == [other for other, _ in followers]
            expected = np.array([count / total for _, count in followers], np.float32)
            np.testing.assert_allclose(rows.probs[index, :width].numpy(), expected, rtol=1e-6)
            assert rows.probs[index, width:].sum() == 0
            assert set(rows.token_ids[index].tolist()) == {other for other, _ in followers}
            place, cumulated = [other for other, _ in followers].index(token), np.cumsum([0, *dict(followers).values()])
            assert cumulated[place] / total - 1e-9 <= uniforms[index] <= cumulated[place + 1] / total + 1e-9
        if len(chain) < len(uniforms):
            assert oracle.ranked_followers(seen, chain, min_order, max_order) == []


def test_long_text_in_small_steps_agrees_with_one_step_and_brute_force():
    rng = np.random.default_rng(5)
    text = np.minimum(rng.zipf(1.3, 1500), 40).tolist()
    stepwise, at = FrequencyTables(1, 4, 200, VOCAB_SIZE), 0
    while at < len(text):
        step = int(rng.integers(1, 5))
        stepwise.extend(np.array(text[at : at + step], np.int32))
        at += step
        if at % 10 == 0:
            at_once = tables_of(text[:at], 1, 4, 200)
            window = text[max(0, at - 200) : at]
            assert stepwise.draft_greedy(5) == at_once.draft_greedy(5) == oracle.frequency(window, 1, 4, 5)
            assert stepwise.counts() == at_once.counts()
            uniforms = rng.random(5)
            (one, one_rows), (other, other_rows) = stepwise.draft_sampled(uniforms), at_once.draft_sampled(uniforms)
            assert one == other
            assert one_rows.token_ids.equal(other_rows.token_ids)
            assert one_rows.probs.equal(other_rows.probs)


@pytest.mark.parametrize("length", [1, 9, 10, 11, 35])
def test_all_tokens_taken_in_are_counted_as_such(length):
    tables = tables_of(list(range(length)), window=10)
    assert (tables.num_tokens, tables.last_token) == (length, length - 1)


@pytest.mark.parametrize("outside", [-1, VOCAB_SIZE])
def test_tokens_outside_the_vocabulary_are_context_only(outside):
    tables = tables_of([1, outside, 1, outside, 1, 2, outside, 4, 1], min_order=1, max_order=2)
    assert tables.draft_greedy(1) == [2]
    chain, rows = tables.draft_sampled(np.array([0.99]))
    assert chain == [2]
    assert rows.token_ids.tolist() == [[2]]
    assert tables_of([outside, 5, outside]).draft_greedy(1) == [5]
    assert tables_of([outside, outside]).draft_greedy(1) == []


def test_counts_hold_with_tokens_outside_the_vocabulary_evicted():
    rng = np.random.default_rng(6)
    text = rng.integers(-1, VOCAB_SIZE + 2, 50).tolist() + rng.integers(-1, 2, 200).tolist()
    tables = FrequencyTables(1, 3, 20, VOCAB_SIZE)
    for at, token in enumerate(text):
        tables.extend(np.array([token], np.int32))
        assert tables.counts() == oracle.ngram_counts(text[max(0, at - 19) : at + 1], 3)


def test_all_ngrams_in_one_bucket_are_still_told_apart():
    rng = np.random.default_rng(7)
    text = rng.integers(0, 6, 150).tolist()
    tables = FrequencyTables(1, 3, 30, VOCAB_SIZE)
    tables._reserve(90)
    tables._buckets = np.zeros(1, np.int32)
    for at, token in enumerate(text):
        tables.extend(np.array([token], np.int32))
        window = text[max(0, at - 29) : at + 1]
        assert tables.counts() == oracle.ngram_counts(window, 3)
        assert tables.draft_greedy(4) == oracle.frequency(window, 1, 3, 4)
    assert len(tables._buckets) == 1


def test_support_is_the_most_frequent_renormalised():
    # Token t occurs 1 + t % 3 times; more than 64 tokens have each count.
    text = [token for token in range(300) for _ in range(1 + token % 3)]
    np.random.default_rng(8).shuffle(text)
    _, rows = tables_of(text, max_order=1, window=1000).draft_sampled(np.array([0.3]))
    expected = oracle.ranked_followers(text, [], 1, 1)[:64]
    assert rows.token_ids[0].tolist() == [token for token, _ in expected]
    np.testing.assert_allclose(rows.probs[0].numpy(), np.full(64, 1 / 64), rtol=1e-6)


def test_memory_is_bounded_by_the_window():
    rng = np.random.default_rng(9)
    window, max_order = 256, 3
    tables = FrequencyTables(1, max_order, window, VOCAB_SIZE)
    num_bytes = []
    for _ in range(500):
        tables.extend(rng.integers(0, VOCAB_SIZE, 20).astype(np.int32))
        num_bytes.append(tables.num_bytes)
    assert num_bytes[-1] == num_bytes[20]
    full = tables._nodes
    tables.extend(np.arange(100, dtype=np.int32))
    assert tables._nodes is full, "a full window needs no new arrays"
    assert max(num_bytes) <= (window * max_order + 1) * (36 + 8) + 4 * window
    assert tables._state[trie.USED] <= window * max_order
