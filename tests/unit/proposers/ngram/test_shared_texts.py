"""What requests that have ended leave to those of their scope, and to nobody else."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.proposers.ngram import pieces
from vllm_spec_plugin.proposers.ngram.pieces import CONTEXT, LENGTH, LIVE, OWNER, PIECE, WAYS
from vllm_spec_plugin.proposers.ngram.shared import SharedTexts

from .shared_oracle import Forgetful

VOCAB_SIZE = 1000
ROOMY = 1 << 13


def store(min_order: int = 1, max_order: int = 3, max_tokens: int = ROOMY) -> SharedTexts:
    return SharedTexts(min_order, max_order, max_tokens, VOCAB_SIZE)


def ids(text: list[int]) -> Any:
    return np.array(text, np.int32)


def of_texts(*texts: list[int], **options: int) -> SharedTexts:
    kept = store(**options)
    for text in texts:
        kept.add("a", ids(text))
    return kept


def colliding(min_order: int = 1, max_order: int = 3, max_tokens: int = ROOMY) -> SharedTexts:
    """A store in which all n-grams of an order have the same hash."""
    kept = store(min_order, max_order, max_tokens)
    kept._ways = np.zeros((max_order - min_order + 1, 1, WAYS), np.int32)
    return kept


def check(kept: SharedTexts, max_tokens: int = ROOMY) -> None:
    """Holds the books against each other."""
    books, num_live = kept._books, np.zeros(len(kept._books), np.int64)
    for row, sets in enumerate(kept._ways):
        for entries in sets[sets.any(1)]:
            used = entries[entries != 0]
            assert (entries[: len(used)] == used).all()
            for entry in used.tolist():
                piece, offset = divmod(entry - 1, PIECE)
                num_live[piece] += 1
                assert offset < books[piece, LENGTH]
                assert offset + books[piece, CONTEXT] >= row + kept._min_order
    assert (num_live == books[:, LIVE]).all()
    assert sorted([*kept._in_use, *kept._given_back]) == list(range(kept._num_pieces_ever))
    assert not num_live[kept._given_back].any()
    for name, scope in kept._scopes.items():
        owned = [piece for piece, owner in kept._in_use.items() if owner is scope]
        assert len(owned) == scope.num_pieces > 0
        assert scope.name == name
        assert (books[owned, OWNER] == scope.number).all()
    assert kept.num_tokens == books[list(kept._in_use), LENGTH].sum() <= max_tokens
    assert {owner.name for owner in kept._in_use.values()} == set(kept._scopes)


def is_grounded(texts: list[list[int]], text: list[int], drafted: list[int], order: int) -> bool:
    """Whether every drafted token stands in one of `texts` behind the `order` tokens that it is to follow."""
    both = text + drafted
    said = {tuple(one[at : at + order + 1]) for one in texts for at in range(len(one) - order)}
    return all(tuple(both[end - order : end + 1]) in said for end in range(len(text), len(both)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_order": 0}, "min_order .*at least 1.* 0"),
        ({"min_order": 4}, "max_order .*min_order, 4.* 3"),
        ({"max_tokens": 63}, "max_tokens .*at least 64.* 63"),
        ({"vocab_size": 0}, "vocab_size .*at least 1.* 0"),
    ],
)
def test_impossible_arguments_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        SharedTexts(**({"min_order": 1, "max_order": 3, "max_tokens": 64, "vocab_size": 9} | changes))


@pytest.mark.parametrize("outside", [-1, VOCAB_SIZE])
def test_a_copy_stops_before_a_token_outside_the_vocabulary(outside):
    kept = of_texts([1, 2, 3, outside, 4, 5])
    assert kept.draft("a", ids([1]), 4) == [2, 3]
    assert kept.draft("a", ids([3]), 4) == []
    assert kept.draft("a", ids([outside]), 1) == [4]


def test_read_only_and_strided_texts_are_taken():
    strided = np.array([[1, 0], [2, 0], [3, 0], [4, 0]], np.int32)[:, 0]
    strided.flags.writeable = False
    kept = store()
    kept.add("a", strided)
    assert kept.draft("a", strided[:2], 4) == [3, 4]


def test_the_givers_buffer_may_be_written_again():
    kept, text = store(), ids([1, 2, 3, 4])
    kept.add("a", text)
    text[:] = 9
    assert kept.draft("a", ids([1, 2]), 4) == [3, 4]


TOKENS = st.integers(0, 3)
TEXTS = st.lists(st.tuples(st.sampled_from("abc"), st.lists(TOKENS, max_size=12)), max_size=12)


@given(
    texts=TEXTS,
    scope=st.sampled_from("abcd"),
    text=st.lists(TOKENS, max_size=8),
    min_order=st.integers(1, 3),
    extra=st.integers(0, 3),
    num_draft_tokens=st.integers(1, 6),
    longer_than=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_every_draft_agrees_with_brute_force(texts, scope, text, min_order, extra, num_draft_tokens, longer_than):
    kept, oracle = store(min_order, min_order + extra), Forgetful(min_order, min_order + extra, ROOMY)
    for owner, said in texts:
        kept.add(owner, ids(said))
        oracle.add(owner, said)
    expected = oracle.draft(scope, text, num_draft_tokens, longer_than)
    assert kept.draft(scope, ids(text), num_draft_tokens, longer_than) == expected
    check(kept)


@pytest.mark.parametrize("make", [store, colliding])
@given(texts=TEXTS, text=st.lists(TOKENS, min_size=1, max_size=8), order=st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_everything_drafted_was_said_in_the_own_scope_behind_the_same_tokens(make, texts, text, order):
    kept = make(order, 3)
    for owner, said in texts:
        kept.add(owner, ids(said))
    for scope in "abcd":
        drafted = kept.draft(scope, ids(text), 6)
        assert is_grounded([said for owner, said in texts if owner == scope], text, drafted, order)
    check(kept)


def test_equal_hashes_cost_entries_and_never_give_a_wrong_draft():
    kept = colliding(1, 1)
    text = list(range(50))
    kept.add("a", ids(text))
    found = {token: kept.draft("a", ids([token]), 1) for token in text[:-1]}
    # The set keeps its newest.
    assert [token for token in found if found[token]] == text[-1 - WAYS : -1]
    assert all(following in ([], [token + 1]) for token, following in found.items())
    check(kept)


def test_a_full_set_is_searched_to_its_end_and_no_further():
    kept = store(1, 1, 64)
    assert kept._ways.shape == (1, 8, WAYS)
    for size in (64, 128, 1024, 1_000_000, 1_048_576):
        num_entries, num_slots = size // PIECE * PIECE, store(2, 2, size)._ways[0].size
        assert 2 * num_entries <= num_slots <= 4 * num_entries


def test_of_a_text_that_is_too_long_the_end_is_kept():
    kept, text = store(max_tokens=4 * PIECE), list(range(10 * PIECE))
    kept.add("b", ids([1, 2, 3]))
    kept.add("a", ids(text))
    assert (kept.num_tokens, len(kept._scopes)) == (4 * PIECE, 1)
    assert kept.draft("a", ids(text[6 * PIECE : 6 * PIECE + 3]), 1000) == text[6 * PIECE + 3 :]
    assert kept.draft("a", ids(text[100:103]), 4) == []
    check(kept, 4 * PIECE)


@pytest.mark.parametrize("seed", range(3))
def test_long_lives_stay_in_bounds_and_agree_with_a_slow_store(seed):
    rng, max_tokens = np.random.default_rng(seed), 6 * PIECE + 17
    kept, slow = store(2, 3, max_tokens), Forgetful(2, 3, max_tokens)
    num_bytes, prompts = kept.num_bytes, [rng.integers(0, 40, 90).tolist() for _ in range(3)]
    for step in range(300):
        scope = f"s{rng.zipf(1.5) % 5}"
        text = prompts[int(rng.integers(3))][: int(rng.integers(91))]
        text = text + rng.integers(0, 40, int(rng.integers(0, 150))).tolist()
        if rng.random() < 0.4:
            kept.add(scope, ids(text))
            slow.add(scope, text)
        else:
            num_draft_tokens, longer_than = int(rng.integers(1, 80)), int(rng.integers(0, 3))
            drafted = kept.draft(scope, ids(text), num_draft_tokens, longer_than)
            assert drafted == slow.draft(scope, text, num_draft_tokens, longer_than)
        assert (kept.num_tokens, len(kept._scopes)) == (slow.num_tokens, slow.num_scopes)
        if step % 20 == 0:
            check(kept, max_tokens)
    assert kept.num_tokens > 4 * PIECE
    assert kept.num_bytes == num_bytes


def test_no_request_runs_what_the_constructor_did_not_compile():
    entries: list[Any] = [pieces.enter, pieces.leave, pieces.copy_continuation]
    kept = store(max_tokens=3 * PIECE)
    compiled = [len(function.signatures) for function in entries]
    assert compiled == [1, 1, 1]
    for begin in range(0, 900, 100):
        kept.add(f"s{begin % 200}", ids(list(range(begin, begin + 150))))
        kept.draft("s0", ids([begin, begin + 1]), 4)
    assert [len(function.signatures) for function in entries] == compiled
