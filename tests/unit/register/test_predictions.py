"""Predicted outputs as clients send them: what is taken, what is refused, what is counted."""

import re
from typing import Any

import pytest

from vllm_spec_plugin.register.predictions import PredictionUsage, _tokenized, tokens_of


class Letters:
    """A token per character."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text]


TOKENIZER = Letters()


def api(content: Any) -> dict[str, Any]:
    return {"prediction": {"type": "content", "content": content}}


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        (api("abc"), [97, 98, 99]),
        (api([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]), [97, 98, 99]),
        ("abc", [97, 98, 99]),
        ([5, 6], [5, 6]),
        (api(""), []),
        (api([]), []),
        ("", []),
        ([], []),
    ],
)
def test_what_a_prediction_may_be(given: Any, tokens: list[int]) -> None:
    assert tokens_of(given, TOKENIZER, 10) == tokens


PART = '{"type": "text", "text": TEXT}'
FORM = f'{{"type": "content", "content": CONTENT}}, where CONTENT is a text or a list of {PART}'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prediction": "abc"}, f"prediction: got the text 'abc'; allowed: {FORM}"),
        ({"prediction": {"content": "a"}}, "prediction.type: got nothing (null); allowed: content"),
        (
            {"prediction": {"type": "content", "content": "a", "text": 1}},
            "prediction.text: unknown key; allowed: type, content",
        ),
        ({"prediction": {"type": "content"}}, f"allowed: a text or a list of {PART}"),
        (
            api([{"type": "text", "text": "a"}, {"type": "image_url"}]),
            "prediction.content[1]: got another kind",
        ),
        (api("a" * 11), "prediction: got 11 tokens; allowed: at most 10 tokens"),
        (api("a" * 161), "prediction: got 161 characters; allowed: at most 10 tokens"),
        ([1] * 11, "prediction: got 11 tokens; allowed: at most 10 tokens"),
        ([1, -1], "vllm_xargs.spec_prediction: got -1 as a token; allowed: a text or tokens"),
        ([2**31], "vllm_xargs.spec_prediction: got 2147483648 as a token; allowed: a text or tokens"),
        (api("a\ud800"), "prediction: got half a surrogate pair; allowed: a text in Unicode"),
        ([True], "vllm_xargs.spec_prediction: got true as a token; allowed: a text or tokens"),
        (7, "vllm_xargs.spec_prediction: got 7; allowed: a text or tokens"),
    ],
)
def test_what_it_may_not_be(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tokens_of(given, TOKENIZER, 10)


def test_without_a_tokenizer_there_are_only_tokens() -> None:
    assert tokens_of([1], None, 10) == [1]
    with pytest.raises(ValueError, match="the server has no tokenizer"):
        tokens_of("a", None, 10)


@pytest.mark.parametrize("given", ["abcd", [97, 98, 99, 100], {"type": "content", "content": "abcd"}])
def test_tokens_are_counted_for_each_choice(given: Any) -> None:
    usage = PredictionUsage(given, TOKENIZER, 10)
    assert usage.details() == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    # Token by token, as in a stream. The second: a, x for b, then c and d as predicted.
    for choice, output in enumerate([[97, 98, 99], [97, 120, 99, 100], []]):
        usage.note(choice, [])
        for token in output:
            usage.note(choice, [token])
    assert usage.details() == {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 6}


def test_what_is_too_long_is_not_kept() -> None:
    kept = _tokenized.cache_info().currsize
    for text in ("b" * 11, "b" * 161):
        with pytest.raises(ValueError, match="allowed: at most 10 tokens"):
            tokens_of(text, TOKENIZER, 10)
    assert _tokenized.cache_info().currsize == kept
