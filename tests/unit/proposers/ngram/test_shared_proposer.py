"""The n-gram proposer with texts of other requests."""

import numpy as np
import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.ngram.proposer import DraftSampling, Mode, NgramProposer
from vllm_spec_plugin.proposers.ngram.shared import SharedTexts
from vllm_spec_plugin.proposers.registry import create_proposer

VOCAB_SIZE = 1000
VARIANTS: list[tuple[Mode, DraftSampling]] = [("lookup", "greedy"), ("frequency", "greedy"), ("frequency", "sample")]
K = 4


def make(mode: Mode = "lookup", sampling: DraftSampling = "greedy", window: int = 512) -> NgramProposer:
    return NgramProposer(mode, 2, 4, window, sampling, VOCAB_SIZE, SharedTexts(2, 4, 1 << 14, VOCAB_SIZE))


@pytest.fixture(params=VARIANTS, ids="-".join)
def proposer(request: pytest.FixtureRequest) -> NgramProposer:
    return make(*request.param)


def draft(proposer: NgramProposer, request_id: str, text: list[int], scope: str | None) -> Draft:
    uniforms = np.random.default_rng(len(text)).random(K)
    (drafted,) = proposer.propose([RequestView(request_id, np.array(text, np.int32), K, uniforms, scope=scope)])
    return drafted


def say(proposer: NgramProposer, request_id: str, text: list[int], scope: str | None) -> None:
    """One whole life of a request that ends."""
    draft(proposer, request_id, text[: len(text) // 2], scope)
    draft(proposer, request_id, text, scope)
    proposer.finish(request_id)


def accepted_and_drafted(
    proposer: NgramProposer, request_id: str, text: list[int], prompt: int, scope: str | None
) -> tuple[int, int]:
    """What becomes of the drafts of a greedy request that says `text`, and ends."""
    length, accepted, drafted = prompt, 0, 0
    while length < len(text):
        tokens = draft(proposer, request_id, text[:length], scope).token_ids[: len(text) - length]
        matches = np.cumprod([one == other for one, other in zip(tokens, text[length:], strict=False)])
        accepted, drafted = accepted + int(matches.sum()), drafted + len(tokens)
        length += int(matches.sum()) + 1
    proposer.finish(request_id)
    return accepted, drafted


def varied(seed: int, num_tokens: int = 400) -> list[int]:
    """Text that says nothing twice."""
    return np.random.default_rng(seed).permutation(VOCAB_SIZE)[:num_tokens].tolist()


def test_a_repeated_request_is_drafted_almost_whole_in_its_own_scope_and_nowhere_else(proposer):
    text = varied(1)
    for request_id, scope in (("first", "a"), ("other scope", "b"), ("private", None)):
        assert accepted_and_drafted(proposer, request_id, text, 20, scope) == (0, 0)
    accepted, drafted = accepted_and_drafted(proposer, "again", text, 20, "a")
    # Of every five tokens four are drafted, the fifth is the target's own.
    assert accepted == drafted >= 0.78 * 380


def test_a_preempted_request_publishes_nothing(proposer):
    text = varied(1)
    draft(proposer, "x", text, "a")
    proposer.forget("x")
    assert len(proposer._shared._scopes) == 0
    proposer.finish("x")
    assert len(proposer._shared._scopes) == 0
    assert proposer._states == proposer._scopes == {}


def test_the_scope_last_seen_counts(proposer):
    text = varied(1)
    for request_id, scopes in (("x", ("a", "b")), ("y", ("a", None))):
        for scope in scopes:
            draft(proposer, request_id, text, scope)
        proposer.finish(request_id)
    assert set(proposer._shared._scopes) == {"b"}


OWN = [1, 2, 3, 50, 9, 1, 2, 3]


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ([8, 1, 2, 3, 60, 61, 62, 63], [50, 9, 1, 2]),  # as long a match: the own text's
        ([9, 1, 2, 3, 60, 61, 62, 63], [60, 61, 62, 63]),  # a longer one
        ([7, 7, 2, 3, 60, 61, 62, 63], [50, 9, 1, 2]),  # a shorter one
    ],
)
def test_lookup_follows_the_longer_match_and_the_own_text_among_equals(shared, expected):
    proposer = make()
    say(proposer, "x", shared, "a")
    assert draft(proposer, "y", OWN, "a").token_ids == expected


def test_where_the_own_match_gives_no_token_the_others_texts_do():
    proposer, own = make(), [1, 2, 3, VOCAB_SIZE, 9, 1, 2, 3]
    say(proposer, "x", [7, 7, 2, 3, 60], "a")
    assert draft(proposer, "y", own, "a").token_ids == [60]


@pytest.mark.parametrize("sampling", ["greedy", "sample"])
def test_frequency_looks_elsewhere_only_where_the_own_text_gives_nothing(sampling):
    proposer = make("frequency", sampling)
    say(proposer, "x", [9, 1, 2, 3, 60, 61, 62, 63], "a")
    assert draft(proposer, "y", OWN, "a").token_ids[0] == 50
    assert draft(proposer, "z", [9, 1, 2, 3], "a") == Draft([60, 61, 62, 63])


def test_of_frequency_the_window_is_learned():
    proposer, text = make("frequency", window=64), varied(1)
    say(proposer, "x", text, "a")
    assert proposer._shared is not None
    assert proposer._shared.num_tokens == 64
    assert draft(proposer, "y", text[-20:-10], "a").token_ids == text[-10:-6]
    assert draft(proposer, "z", text[100:110], "a") == NO_DRAFT


@pytest.mark.parametrize("mode", ["lookup", "frequency"])
def test_what_is_learned_is_the_text_in_its_order(mode):
    proposer, text = make(mode, window=70), varied(3, 150)
    for length in (3, 40, 41, 100, 150):
        draft(proposer, "x", text[:length], "a")
        held = proposer._states["x"].text.tolist()
        assert held == (text[:length] if mode == "lookup" else text[:length][-70:])


@pytest.mark.parametrize(("given", "num_tokens"), [({"shared": True, "shared_tokens": 2048}, 2048), ({}, None)])
def test_the_registry_builds_what_is_configured(given, num_tokens):
    config = parse_config({"proposer": {"method": "ngram", "min_order": 3, "max_order": 4} | given}, "spec.yaml")
    proposer = create_proposer(config.proposers[0], 4, VOCAB_SIZE)
    assert isinstance(proposer, NgramProposer)
    shared = proposer._shared
    if num_tokens is None:
        assert shared is None
        return
    assert shared is not None
    shared.add("a", np.arange(5000, dtype=np.int32))
    assert shared.num_tokens == num_tokens
    assert shared.draft("a", np.array([4001, 4002], np.int32), 1) == []
    assert shared.draft("a", np.arange(3990, 3993, dtype=np.int32), 1) == []  # not in the vocabulary
