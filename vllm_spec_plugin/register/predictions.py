"""Reads requests' predicted outputs, and counts which of their tokens the outputs have."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from vllm_spec_plugin.proposers.prediction.alignment import Alignment
from vllm_spec_plugin.schema.errors import show

# Characters per token of the longest text, beyond which a prediction is refused before it is tokenized.
_CHARACTERS = 16
_PART = '{"type": "text", "text": TEXT}'
# Tokens are 32 bits wide in vLLM.
_NUM_TOKENS = 2**31
_FORM = f'{{"type": "content", "content": CONTENT}}, where CONTENT is a text or a list of {_PART}'


def tokens_of(given: Any, tokenizer: Any, max_model_len: int) -> list[int]:
    """Tokenizes a prediction; empty for one without text.

    Args:
        given: a text, a list of tokens, or {"prediction": P} for a request's `prediction` P.
        tokenizer: the target's; None is a server that takes tokens only.
        max_model_len: maximum number of tokens of a request's text: no longer prediction can be of use.

    Raises:
        ValueError: names what is wrong and what is allowed.
    """
    if isinstance(given, list):
        wrong = next((token for token in given if type(token) is not int or not 0 <= token < _NUM_TOKENS), None)
        if wrong is not None:
            raise ValueError(f"vllm_xargs.spec_prediction: got {show(wrong)} as a token; allowed: a text or tokens")
        tokens = given
    else:
        text = text_of(given["prediction"]) if isinstance(given, Mapping) and "prediction" in given else given
        if not isinstance(text, str):
            raise ValueError(f"vllm_xargs.spec_prediction: got {show(text)}; allowed: a text or tokens")
        if tokenizer is None:
            raise ValueError("prediction: the server has no tokenizer; allowed: tokens in vllm_xargs.spec_prediction")
        if len(text) > _CHARACTERS * max_model_len:
            raise _too_long(f"{len(text):,} characters", max_model_len)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("prediction: got half a surrogate pair; allowed: a text in Unicode") from None
        tokens = tokenizer.encode(text, add_special_tokens=False)
    if len(tokens) > max_model_len:
        raise _too_long(f"{len(tokens):,} tokens", max_model_len)
    return tokens


class PredictionUsage:
    """Counts, for `usage.completion_tokens_details`, a prediction's tokens that outputs have, and those that not.

    A predicted token counts as accepted, once, if the output had it at its position, drafted or not: the figures depend
    on texts alone, not on draft lengths. Each choice has the whole prediction to itself.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        """Starts with no output."""
        self._prediction = prediction
        self._choices: dict[Hashable, Alignment] = {}

    def note(self, choice: Hashable, tokens: Iterable[int]) -> None:
        """Notes new tokens of a choice."""
        if choice not in self._choices:
            self._choices[choice] = Alignment(self._prediction)
        self._choices[choice].advance(tokens)

    def details(self) -> dict[str, int]:
        """Returns the figures of the tokens noted so far, summed over choices."""
        accepted = sum(choice.num_accepted for choice in self._choices.values())
        rejected = len(self._choices) * len(self._prediction) - accepted
        return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def text_of(given: Any) -> str:
    """Reads the text of a `prediction` of OpenAI's API.

    Raises:
        ValueError: names what is wrong and what is allowed.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"prediction: got {show(given)}; allowed: {_FORM}")
    if given.get("type") != "content":
        raise ValueError(f"prediction.type: got {show(given.get('type'))}; allowed: content")
    if unknown := sorted(map(str, set(given) - {"type", "content"})):
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


def _too_long(got: str, max_model_len: int) -> ValueError:
    return ValueError(f"prediction: got {got}; allowed: at most {max_model_len:,} tokens, the model's maximum length")
