"""The bytes of tokens, of each kind of vocabulary."""

from collections.abc import Callable

import pytest

from tests.unit.proposers.grammar.states import Wrapped, byte_level, sentence_piece
from vllm_spec_plugin.proposers.grammar.vocabulary import Vocabulary

TEXTS = ["the city", '{"name": "Ann"}', "caf\u00e9 \u4e2d\U0001f600\n\t x", "  two spaces"]


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_spell_the_text_that_they_were_made_from(make: Callable[[], Wrapped], text: str) -> None:
    tokenizer = make()
    spelled = Vocabulary(tokenizer.pieces()).join(tokenizer.encode(text))
    assert spelled in (text.encode(), b" " + text.encode())


def test_special_and_unknown_tokens_have_no_bytes() -> None:
    vocabulary = Vocabulary(byte_level().pieces())
    assert vocabulary.bytes_of(0) is None
    assert vocabulary.join([5, 0]) is None
    assert vocabulary.bytes_of(10**6) is None


def test_added_tokens_have_plain_text() -> None:
    """In a byte-level vocabulary as well, where a plain space stands for no byte."""
    vocabulary = Vocabulary({"\u0120": 0, "a": 1, "<tool call>": 2, "\u4e2d": 3})
    assert vocabulary.bytes_of(0) == b" "
    assert vocabulary.bytes_of(2) == b"<tool call>"
    assert vocabulary.bytes_of(3) == "\u4e2d".encode()


@pytest.mark.parametrize(
    ("text", "is_forced"),
    [("x", True), ("xy", True), ("a", False), ("ab", False), ("abc", False), ("b", True), ("bab", True), ("c", False)],
)
def test_a_text_is_forced_token_by_token_if_one_token_begins_it_and_none_goes_on(text: str, is_forced: bool) -> None:
    """`a` could be `a`, `ab` or a part of `ab`; `c` begins with no token but is a part of one."""
    vocabulary = Vocabulary({"a": 0, "ab": 1, "b": 2, "x": 3, "y": 4, "cd": 5})
    assert vocabulary.has_one_way(text.encode()) == is_forced
