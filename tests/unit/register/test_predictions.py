"""Predicted outputs as clients send them: what is taken, what is refused, what is counted."""

import re
from typing import Any

import pytest

from vllm_spec_plugin.register.predictions import PredictionUsage, text_of, tokens_of


class Letters:
    """A token per character."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text]


def content(given: Any) -> dict[str, Any]:
    return {"type": "content", "content": given}


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({"prediction": content("abc")}, [97, 98, 99]),
        ({"prediction": content([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}])}, [97, 98, 99]),
        ({"prediction": content([])}, []),
        ("abc", [97, 98, 99]),
        ([5, 6], [5, 6]),
        ("", []),
    ],
)
def test_predictions_become_tokens(given: Any, tokens: list[int]) -> None:
    assert tokens_of(given, Letters(), 10) == tokens


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("abc", "prediction"),
        ({"content": "a"}, "prediction.type"),
        ({"type": "content", "content": "a", "text": 1}, "prediction.text"),
        ({"type": "content", "content": "a", 1: 2, None: 3}, "prediction.1"),
        ({"type": "content"}, "prediction.content"),
        (content([{"type": "text", "text": "a"}, {"type": "image_url"}]), "prediction.content[1]"),
    ],
)
def test_another_form_is_refused_with_the_key(given: Any, key: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(key)}: .*; allowed: "):
        text_of(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((given, "at most 10 tokens") for given in ("a" * 11, "a" * 161, [1] * 11)),
        *((given, "as a token") for given in ([1, -1], [2**31], [True])),
        ("a\ud800", "half a surrogate pair"),
        *((given, "a text or tokens") for given in (7, {}, {1: 2})),
    ],
)
def test_texts_and_tokens_that_cannot_be_used_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^(prediction|vllm_xargs\.spec_prediction): .*{words}"):
        tokens_of(given, Letters(), 10)


def test_without_a_tokenizer_there_are_only_tokens() -> None:
    assert tokens_of([1], None, 10) == [1]
    with pytest.raises(ValueError, match="the server has no tokenizer"):
        tokens_of("a", None, 10)


def test_tokens_are_counted_for_each_choice() -> None:
    usage = PredictionUsage([97, 98, 99, 100])
    assert usage.details() == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    # Token by token, as in a stream. The second: a, x for b, then c and d as predicted.
    for choice, output in enumerate([[97, 98, 99], [97, 120, 99, 100], []]):
        usage.note(choice, [])
        for token in output:
            usage.note(choice, [token])
    assert usage.details() == {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 6}


def test_an_output_that_repeats_itself_has_each_predicted_token_once() -> None:
    """A prediction of 40 tokens, repeated by the output until it has 116."""
    prediction = list(range(40))
    usage = PredictionUsage(prediction)
    usage.note(0, [*prediction, *prediction, *prediction][:116])
    assert usage.details() == {"accepted_prediction_tokens": 40, "rejected_prediction_tokens": 0}
