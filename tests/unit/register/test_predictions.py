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


TOKENIZER = Letters()


def content(given: Any) -> dict[str, Any]:
    return {"type": "content", "content": given}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("abc", "abc"),
        ([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}], "abc"),
        ("", ""),
        ([], ""),
    ],
)
def test_what_a_prediction_may_be(given: Any, text: str) -> None:
    assert text_of(content(given)) == text


@pytest.mark.parametrize(
    ("given", "tokens"),
    [({"prediction": content("abc")}, [97, 98, 99]), ("abc", [97, 98, 99]), ([5, 6], [5, 6]), ("", []), ([], [])],
)
def test_predictions_become_tokens(given: Any, tokens: list[int]) -> None:
    assert tokens_of(given, TOKENIZER, 10) == tokens


PART = '{"type": "text", "text": TEXT}'
FORM = f'{{"type": "content", "content": CONTENT}}, where CONTENT is a text or a list of {PART}'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", f"prediction: got the text 'abc'; allowed: {FORM}"),
        ({"content": "a"}, "prediction.type: got nothing (null); allowed: content"),
        ({"type": "content", "content": "a", "text": 1}, "prediction.text: unknown key; allowed: type, content"),
        ({"type": "content"}, f"allowed: a text or a list of {PART}"),
        ({"type": "content", "content": "a", 1: 2, None: 3}, "prediction.1: unknown key; allowed: type, content"),
        (content([{"type": "text", "text": "a"}, {"type": "image_url"}]), "prediction.content[1]: got another kind"),
    ],
)
def test_what_it_may_not_be(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        text_of(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a" * 11, "prediction: got 11 tokens; allowed: at most 10 tokens"),
        ("a" * 161, "prediction: got 161 characters; allowed: at most 10 tokens"),
        ([1] * 11, "prediction: got 11 tokens; allowed: at most 10 tokens"),
        ([1, -1], "vllm_xargs.spec_prediction: got -1 as a token; allowed: a text or tokens"),
        ([2**31], "vllm_xargs.spec_prediction: got 2147483648 as a token; allowed: a text or tokens"),
        ("a\ud800", "prediction: got half a surrogate pair; allowed: a text in Unicode"),
        ([True], "vllm_xargs.spec_prediction: got true as a token; allowed: a text or tokens"),
        (7, "vllm_xargs.spec_prediction: got 7; allowed: a text or tokens"),
        ({}, "vllm_xargs.spec_prediction: got a section; allowed: a text or tokens"),
        ({1: 2}, "vllm_xargs.spec_prediction: got a section; allowed: a text or tokens"),
    ],
)
def test_what_its_text_may_not_be(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tokens_of(given, TOKENIZER, 10)


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
