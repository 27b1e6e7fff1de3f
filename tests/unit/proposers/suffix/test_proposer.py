"""Drafts of requests, from their own text and from texts of their scope that have ended."""

import numpy as np
import pytest

from tests.unit.proposers.suffix import oracle
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
from vllm_spec_plugin.proposers.suffix.store import GENERATIONS, OVERLAP, TextStore

VOCAB_SIZE = 12
K = 5


def view(name: str, tokens, count: int = K, scope: str | None = None, seed: int = 0, **keys) -> RequestView:
    uniforms = np.random.default_rng(seed).random(count)
    return RequestView(name, np.array(tokens, np.int32), count, uniforms, scope=scope, **keys)


def make(min_order: int = 1, least: float = 0.0, shared: int | None = None) -> SuffixProposer:
    store = None if shared is None else TextStore(shared, VOCAB_SIZE)
    return SuffixProposer(min_order, least, VOCAB_SIZE, store)


def draft(proposer: SuffixProposer, *arguments, **keys) -> list[int]:
    [made] = proposer.propose([view(*arguments, **keys)])
    return made.token_ids


def end(proposer: SuffixProposer, name: str, tokens, scope: str | None) -> None:
    draft(proposer, name, tokens, scope=scope)
    proposer.finish(name)


def test_a_draft_ends_where_its_probability_falls_below_the_least() -> None:
    """Two tokens matched once: 2/5, 2/5 * 3/6 = 1/5; matched twice: 4/7."""
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2]
    assert draft(make(least=0.2), "a", text) == [3, 4]
    assert draft(make(least=0.21), "a", text) == [3]
    assert draft(make(least=0.41), "a", text) == []
    assert draft(make(least=0.57), "a", [1, 2, 3, 4, 1, 2, 3, 5, 1, 2]) == [3]


def test_a_text_that_is_another_one_is_taken_in_anew() -> None:
    proposer = make()
    draft(proposer, "a", [1, 2, 3, 1, 2])
    assert draft(proposer, "a", [4, 5, 4]) == [5, 4, 5, 4, 5]
    assert draft(proposer, "a", [4, 5, 4, 6, 7, 6]) == [7, 6, 7, 6, 7]
    proposer.forget("a")
    assert proposer.num_bytes == 0


@pytest.mark.parametrize("least", [0.0, 0.2])
def test_matches_with_ended_texts_are_those_of_a_search(least: float) -> None:
    """30 stores of up to 6 texts that come while a request runs, seed 5; texts are shorter than the overlap."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        proposer, others = make(shared=100_000, least=least), []
        text = rng.integers(0, 3, 90)
        for length in range(2, 90, 3):
            if rng.random() < 0.2:
                others.append(rng.integers(0, 3, rng.integers(2, 60)).tolist())
                end(proposer, f"ended {length}", others[-1], "one")
            own, kept = text[:length].tolist(), [other for other in others if not _begins(other, others)]
            # The end of each text follows its last token.
            kept = [[*other, -2 - number] for number, other in enumerate(kept)]
            shared = oracle.longest_match(own, kept)
            if shared > oracle.longest_match(own):
                expected = oracle.continuation(own, K, least, kept)
            else:
                expected = oracle.continuation(own, K, least)
            assert draft(proposer, "b", own, scope="one") == expected


def _begins(text: list[int], others: list[list[int]]) -> bool:
    """Whether an earlier text has all of it: then it is not kept."""
    earlier = others[: next(place for place, other in enumerate(others) if other is text)]
    return any(other[at : at + len(text)] == text for other in earlier for at in range(len(other)))


def test_a_beginning_that_is_kept_is_not_kept_again() -> None:
    store, rng = TextStore(100_000, VOCAB_SIZE), np.random.default_rng(6)
    text = rng.integers(0, VOCAB_SIZE, 3000).astype(np.int32)
    for length in range(1000, 3001, 500):
        store.add("one", text[:length])
        store.add("one", text[:length])
    assert store.num_tokens <= 3000 + 4 * (OVERLAP + 1) + 1
    [generation] = store.generations("one")
    assert generation.tree.num_matched == 0, "all that is kept is counted, as each text's end is its own"


def test_what_was_least_recently_used_goes_and_memory_is_bounded() -> None:
    """60 texts of two scopes, seed 7, of which one generation is drafted from again and again."""
    most, rng = 8192, np.random.default_rng(7)
    store = TextStore(most, 1000)
    proposer = SuffixProposer(3, 0.0, 1000, store)
    texts = [rng.integers(0, 1000, 500) for _ in range(60)]
    for number, text in enumerate(texts):
        end(proposer, f"ended {number}", text, f"scope {number % 2}")
        assert draft(proposer, f"asking {number}", texts[0][:50], scope="scope 0") == texts[0][50:55].tolist()
        assert store.num_tokens <= most
        kept = [other for scope in ("scope 0", "scope 1") for other in store.generations(scope)]
        assert sum(other.tree.num_tokens for other in kept) <= store.num_tokens
        assert all(other.tree.num_tokens <= most // GENERATIONS for other in kept)
        proposer.forget(f"asking {number}")
    assert draft(proposer, "gone", texts[4][:50], scope="scope 0") == []
    assert draft(proposer, "kept", texts[58][:50], scope="scope 0") == texts[58][50:55].tolist()
    proposer.reset()
    assert proposer.num_bytes == store.num_tokens == 0
    assert not store.generations("scope 0")


def test_many_small_scopes_are_bounded_too() -> None:
    store = TextStore(4096, VOCAB_SIZE)
    for number in range(100):
        store.add(f"scope {number}", np.arange(10, dtype=np.int32))
    kept = [number for number in range(100) if store.generations(f"scope {number}")]
    assert kept == list(range(100 - 4096 // 256, 100))
