"""Drafts from grammars of a few texts."""

from collections.abc import Iterable

import numpy as np
import pytest

from tests.unit.proposers.grammar.states import Texts, Wrapped, byte_level, sentence_piece, times
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.grammar.proposer import SECONDS, GrammarProposer
from vllm_spec_plugin.proposers.grammar.state import Kind

BYTE_LEVEL, SENTENCE_PIECE = byte_level(), sentence_piece()
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCE_PIECE], ids=["byte level", "sentence piece"])


def view(state: Texts | None, text: str, tokenizer: Wrapped = BYTE_LEVEL, count: int = 12) -> RequestView:
    """A request with a prompt of 3 tokens and that output."""
    token_ids = np.array([1, 2, 3, *tokenizer.encode(text)], np.int32)
    return RequestView("a", token_ids, count, np.zeros(count), num_prompt_tokens=3, grammar=state)


def drafted(
    texts: Iterable[str], so_far: str, tokenizer: Wrapped = BYTE_LEVEL, count: int = 12, *, reads_text: bool = True
) -> tuple[str, list[Kind]]:
    """Returns the text of the draft, with <end> for the stop token, and kinds."""
    state = Texts(texts, tokenizer, so_far, reads_text=reads_text)
    proposer = GrammarProposer(tokenizer, 10**6, times(0.0))
    [draft] = proposer.propose([view(state, so_far, tokenizer, count)])
    assert state.steps == [so_far.encode()]
    text = tokenizer.spell(draft.token_ids).decode()
    return text + "<end>" * draft.token_ids.count(0), [Kind(kind) for kind in draft.kinds]


@BOTH
@pytest.mark.parametrize("reads_text", [True, False])
@pytest.mark.parametrize(
    ("texts", "so_far", "expected"),
    [
        (["the_name", "the_city"], "t", "he_"),
        (["the name"], "the", " name<end>"),
        (["the name"], "the name", "<end>"),
        (["the name", "the names"], "the name", ""),
        (["the name", "the age"], "the ", ""),
    ],
)
def test_what_is_forced_is_drafted(
    texts: list[str], so_far: str, expected: str, tokenizer: Wrapped, reads_text: bool
) -> None:
    assert drafted(texts, so_far, tokenizer, reads_text=reads_text)[0] == expected


@pytest.mark.parametrize("reads_text", [True, False])
def test_a_draft_ends_when_time_is_up(reads_text: bool) -> None:
    """The clock is read at the begin and before each step."""
    lengths = []
    for num_steps in (0, 3):
        state = Texts(["the name of the city"], BYTE_LEVEL, "the", reads_text=reads_text)
        clock = times(0.0, *[SECONDS / 2] * num_steps, SECONDS)
        [draft] = GrammarProposer(BYTE_LEVEL, 10**6, clock).propose([view(state, "the")])
        lengths.append(len(draft.token_ids))
    assert lengths[0] == 0 < lengths[1]


def test_the_likeliest_stop_token_is_drafted_where_only_stop_tokens_are_allowed() -> None:
    state = Texts(["the"], BYTE_LEVEL, "the")
    for stops, allowed, expected in (
        ((7, 0), [0, 7], [7]),
        ((0,), [0], [0]),
        ((7, 0), [0], [0]),
        ((0,), [0, 9], []),
        ((7,), [0], []),
    ):
        state.stop_token_ids = stops
        state.allowed = lambda most, allowed=allowed: allowed  # type: ignore[method-assign,misc]
        proposer = GrammarProposer(BYTE_LEVEL, 10**6, times(0.0))
        [draft] = proposer.propose([view(state, "the")])
        assert draft.token_ids == expected
        assert list(draft.kinds[:1]) == [Kind.GUESS if len(allowed) > 1 else Kind.FORCED] * len(expected)


@pytest.mark.parametrize(
    ("other", "most", "kept", "expected"),
    [
        ("name of", 12, "name", "name is known"),
        ("name is", 12, "name is", "name is known"),
        ("lot", 12, "", "name is known"),
        ("name of", 0, "name", "name"),
    ],
)
def test_a_draft_of_another_is_cut_where_it_leaves_the_grammar_and_continued(
    other: str, most: int, kept: str, expected: str
) -> None:
    tokenizer = BYTE_LEVEL
    state = Texts(["the name is known"], tokenizer, "the ")
    proposer = GrammarProposer(tokenizer, 10**6, times(0.0))
    first, (added, kinds) = proposer.continued(view(state, "the ", tokenizer), tokenizer.encode(other), most)
    assert tokenizer.spell(first).decode().strip() == kept
    assert tokenizer.spell([*first, *added]).decode().strip() == expected
    assert len(kinds) == len(added)
    assert state.steps == [b"the "]


def test_a_draft_ends_before_tokens_that_do_not_pay() -> None:
    """The guess is whitespace after a colon, which other outputs lacked; forced tokens are drafted all the same."""
    proposer = GrammarProposer(BYTE_LEVEL, 10**6, times(0.0))
    texts, so_far = ['{"a":1}', '{"a": 1}'], "{"

    def drafted(request_id: str, least: float) -> str:
        asked = view(Texts(texts, BYTE_LEVEL, so_far), so_far)._replace(request_id=request_id, least_acceptance=least)
        return BYTE_LEVEL.spell(proposer.propose([asked])[0].token_ids).decode()

    assert drafted("a", 0.0).startswith('"a": 1}')
    assert drafted("a", 0.95) == '"a'
    for _ in range(40):
        proposer.verified("a", [Kind.LIKELY, Kind.LIKELY, Kind.GUESS], 2)
    assert drafted("a", 0.5) == '"a":'
    assert drafted("b", 0.5) == '"a":'
