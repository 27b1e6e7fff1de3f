"""Texts are functions of seed and prompt."""

from vllm_spec_plugin.tools.mock_server.text import WORDS, continuation, detokenize, tokenize


def test_the_same_prompt_gets_the_same_text_and_another_seed_another_one() -> None:
    prompt = tokenize("say something")
    text = continuation(prompt, 20, seed=1)
    assert continuation(prompt, 20, seed=1) == text
    assert continuation(prompt, 20, seed=2) != text
    assert continuation(tokenize("say anything"), 20, seed=1) != text


def test_the_text_is_the_same_one_today_and_tomorrow() -> None:
    """Else figures of different days, processes or machines could not be compared."""
    assert detokenize(continuation(tokenize("hello world"), 5, seed=0)) == " pen ven ve no zer"


def test_fewer_tokens_are_the_beginning_of_more() -> None:
    assert continuation((1, 2), 50, seed=0)[:7] == continuation((1, 2), 7, seed=0)


def test_what_was_written_is_read_as_the_same_tokens() -> None:
    assert len(set(WORDS)) == 256
    tokens = continuation((1,), 300, seed=0)
    assert tokenize(detokenize(tokens)) == tokens


def test_other_words_are_tokens_that_are_never_written() -> None:
    assert all(token >= len(WORDS) for token in tokenize("Hello, world \ud800"))
    assert len(tokenize(" a few  words\n")) == 3


def test_a_text_has_characters_of_several_bytes() -> None:
    assert not detokenize(continuation((1,), 64, seed=0)).isascii()
