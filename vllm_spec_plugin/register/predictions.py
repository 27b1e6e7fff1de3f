"""Reads requests' predicted outputs, and counts which of their tokens the outputs have."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.proposers.prediction.alignment import Alignment
from vllm_spec_plugin.schema.errors import show

# Characters per token of the longest text, beyond which a prediction is refused before it is tokenized.
_CHARACTERS = 16
_PART = '{"type": "text", "text": TEXT}'
_FORM = f'{{"type": "content", "content": CONTENT}}, where CONTENT is a text or a list of {_PART}'


def tokens_of(given: Any, tokenizer: Any, max_model_len: int) -> list[int]:
    """Tokenizes a prediction; empty for one without text.

    Args:
        given: of `vllm_xargs` a text or a list of tokens; {"prediction": P} for the request's `prediction` P.
        tokenizer: the target's; None is a server that takes tokens only.
        max_model_len: most tokens of a request's text: no longer prediction can be of use.

    Raises:
        ValueError: names what is wrong and what is allowed.
    """
    if isinstance(given, list):
        wrong = next((token for token in given if type(token) is not int or token < 0), None)
        if wrong is not None:
            raise ValueError(f"vllm_xargs.spec_prediction: got {show(wrong)} as a token; allowed: a text or tokens")
        tokens = given
    else:
        text = _text_of(given["prediction"]) if isinstance(given, Mapping) else given
        if not isinstance(text, str):
            raise ValueError(f"vllm_xargs.spec_prediction: got {show(text)}; allowed: a text or tokens")
        if tokenizer is None:
            raise ValueError("prediction: the server has no tokenizer; allowed: tokens in vllm_xargs.spec_prediction")
        if len(text) > _CHARACTERS * max_model_len:
            raise _too_long(f"{len(text):,} characters", max_model_len)
        tokens = list(_tokenized(tokenizer, text))
    if len(tokens) > max_model_len:
        raise _too_long(f"{len(tokens):,} tokens", max_model_len)
    return tokens


def details(given: Any, tokenizer: Any, outputs: Iterable[Sequence[int]]) -> dict[str, int]:
    """Counts, for `usage.completion_tokens_details`, a prediction's tokens that outputs have, and those that not.

    A token counts as accepted if it was the predicted one at its place, drafted or not: the figures depend on the texts
    alone, not on draft lengths.

    Args:
        given: a text, tokens, or a `prediction` of OpenAI's API; `tokens_of` has accepted it.
        tokenizer: the target's.
        outputs: tokens of each choice; each has the whole prediction to itself.
    """
    text = _text_of(given) if isinstance(given, Mapping) else given
    prediction = _tokenized(tokenizer, text) if isinstance(text, str) else text
    accepted = rejected = 0
    for output in outputs:
        alignment = Alignment(prediction)
        alignment.advance(output)
        accepted += alignment.num_accepted
        rejected += max(len(prediction) - alignment.num_accepted, 0)
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def _text_of(given: Any) -> str:
    """The text of a `prediction` of OpenAI's API."""
    if not isinstance(given, Mapping):
        raise ValueError(f"prediction: got {show(given)}; allowed: {_FORM}")
    if given.get("type") != "content":
        raise ValueError(f"prediction.type: got {show(given.get('type'))}; allowed: content")
    if unknown := sorted(set(given) - {"type", "content"}):
        raise ValueError(f"prediction.{unknown[0]}: unknown key; allowed: type, content")
    content = given.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"prediction.content: got {show(content)}; allowed: a text or a list of {_PART}")
    for number, part in enumerate(content):
        if not (isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError(f"prediction.content[{number}]: got another kind of part; allowed: {_PART}")
    return "".join(part["text"] for part in content)


@functools.lru_cache(maxsize=64)
def _tokenized(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokens of a text; kept until the request's usage is counted."""
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _too_long(got: str, max_model_len: int) -> ValueError:
    return ValueError(f"prediction: got {got}; allowed: at most {max_model_len:,} tokens, the model's longest text")
