"""Texts are functions of seed and prompt."""

from vllm_spec_plugin.tools.mock_server.text import WORDS, continuation, detokenize, tokenize


def test_the_text_is_the_same_one_today_and_tomorrow() -> None:
    """Else figures of different days, processes or machines could not be compared."""
    assert detokenize(continuation(tokenize("hello world"), 5, seed=0)) == " pen ven ve no zer"


def test_fewer_tokens_are_the_beginning_of_more() -> None:
    assert continuation((1, 2), 50, seed=0)[:7] == continuation((1, 2), 7, seed=0)


def test_what_was_written_is_read_as_the_same_tokens() -> None:
    assert len(set(WORDS)) == 256
    tokens = continuation((1,), 300, seed=0)
    assert tokenize(detokenize(tokens)) == tokens
