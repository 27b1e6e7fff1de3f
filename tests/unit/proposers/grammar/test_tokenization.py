"""Drafted texts are tokenized as after the request's text."""

from collections.abc import Callable

import pytest

from tests.unit.proposers.grammar.states import Wrapped, byte_level, sentence_piece
from vllm_spec_plugin.proposers.grammar.state import Kind
from vllm_spec_plugin.proposers.grammar.tokenization import Segment, Tokenization

TEXTS = ['name": "', ' "city": ', "the age", "\n  ", '"', "\u4e2d\U0001f600"]


def likely(text: str) -> tuple[Segment, ...]:
    return (Segment(text, Kind.LIKELY),)


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("before", ["{", '{"', "the", " ", "", "1"])
def test_tokens_continue_the_text(make: Callable[[], Wrapped], text: str, before: str) -> None:
    """After any token, and without the space that SentencePiece puts before a text."""
    tokenizer = make()
    first = tokenizer.encode(before)[-1] if before else 0
    draft = Tokenization(tokenizer).draft(first, likely(text))
    assert tokenizer.spell(draft.token_ids).decode() == text
    assert len(draft.kinds) == len(draft.token_ids)


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_a_text_that_is_cut_between_tokens_gets_the_same_tokens(make: Callable[[], Wrapped]) -> None:
    tokenizer = make()
    text = '{"name": "Ann Lee", "age": 41, "city": "Bern"}'
    token_ids, tokenization = tokenizer.encode(text), Tokenization(tokenizer)
    for i in range(1, len(token_ids)):
        given = tokenizer.spell(token_ids[:i]).decode().removeprefix(" ")
        draft = tokenization.draft(token_ids[i - 1], likely(text[len(given) :]))
        assert draft.token_ids == token_ids[i:]


def test_a_text_with_the_text_of_a_special_token_gives_no_draft() -> None:
    """The tokenizer reads it as that token, which no grammar allows as text."""
    draft = Tokenization(byte_level()).draft(5, likely('"<end>"'))
    assert draft.token_ids == []


def test_kinds_are_those_of_the_least_certain_byte() -> None:
    tokenizer = byte_level()
    segments = (Segment("name", Kind.LIKELY), Segment('": "', Kind.GUESS), Segment("\u00e9", Kind.LIKELY))
    draft = Tokenization(tokenizer).draft(5, segments)
    spelled = [tokenizer.decode([token]) for token in draft.token_ids]
    assert spelled[:3] == ["name", '":', ' "']
    # Each of the last letter's two bytes can only be one token.
    assert draft.kinds == [Kind.LIKELY, Kind.GUESS, Kind.GUESS, Kind.FORCED, Kind.FORCED]
