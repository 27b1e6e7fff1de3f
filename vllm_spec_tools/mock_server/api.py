"""The two APIs: requests as they are read, and responses field by field as vLLM 0.32 writes them.

A text is a function of seed and prompt.
"""

import random
import time
import zlib
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

Json = dict[str, Any]
Tokens = tuple[int, ...]
_STARTS = "bdfghklmnprstvwz"
# A few of more than one byte: a client that splits bytes anywhere meets split characters.
_ENDS = ("a", "e", "i", "o", "u", "an", "en", "in", "on", "un", "ar", "er", "ir", "é", "ö", "語")
# A token is a word with a space before it; its id is its index.
WORDS = tuple(start + end for start, end in product(_STARTS, _ENDS))
_IDS = {word: token for token, word in enumerate(WORDS)}
_VOCAB_SIZE = 32000
# What a chat gets that names no limit; vLLM would go on to the end of the context.
_CHAT_TOKENS = 128
_COMPLETION_TOKENS = 16


def tokenize(text: str) -> Tokens:
    """Token ids of a text, one per word between spaces; words that the server never writes get ids above its own."""
    unknown = _VOCAB_SIZE - len(WORDS)
    return tuple(
        _IDS[word] if word in _IDS else len(WORDS) + zlib.crc32(word.encode(errors="replace")) % unknown
        for word in text.split()
    )


def detokenize(tokens: Sequence[int]) -> str:
    """The text of tokens that the server wrote."""
    return "".join(f" {WORDS[token]}" for token in tokens)


def continuation(prompt: Sequence[int], num_tokens: int, seed: int) -> Tokens:
    """The tokens that follow a prompt: the same ones each time, and with fewer tokens the beginning of them.

    Sampling parameters do not matter: at every temperature the answer is the greedy one.
    """
    rng = random.Random(f"text {seed} {list(prompt)}")
    return tuple(int(rng.random() * len(WORDS)) for _ in range(num_tokens))


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class ApiRequest(BaseModel):
    """Parameters of both APIs. Others are accepted and do nothing, `ignore_eos` and `temperature` among them."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = False
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = 1
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    vllm_xargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream options can only be defined when `stream=True`")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a last chunk has the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether all chunks have it. As in vLLM: without the last usage there is none on the way."""
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def speculates(self) -> bool:
        """Whether tokens are drafted."""
        return (self.vllm_xargs or {}).get("spec") != "off"

    @cached_property
    def tokens(self) -> Tokens:
        """The prompt's token ids, at least one."""
        raise NotImplementedError

    @property
    def num_tokens(self) -> int:
        """Output tokens: a mock text does not end by itself."""
        return self.max_tokens or _COMPLETION_TOKENS


class CompletionRequest(ApiRequest):
    """`POST /v1/completions`."""

    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

    @cached_property
    def tokens(self) -> Tokens:
        """See `ApiRequest`. Blanks alone are a prompt too."""
        return (tokenize(self.prompt) or (0,)) if isinstance(self.prompt, str) else tuple(self.prompt)


class TextPart(BaseModel):
    """A part of a message."""

    text: str


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: str
    content: str | list[TextPart] | None = None

    def text(self) -> str:
        """Returns role and content, in place of a chat template."""
        parts = self.content if isinstance(self.content, str) else " ".join(part.text for part in self.content or ())
        return f"<{self.role}> {parts}"


class ChatRequest(ApiRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    @cached_property
    def tokens(self) -> Tokens:
        """See `ApiRequest`."""
        return tokenize(" ".join([*(message.text() for message in self.messages), "<assistant>"]))

    @property
    def num_tokens(self) -> int:
        """See `ApiRequest`."""
        return self.max_completion_tokens or self.max_tokens or _CHAT_TOKENS


class Wire:
    """Words responses of an API. Prompts and tokens are ids where the client requested them, else None."""

    def __init__(self, number: int, model: str, *, is_chat: bool) -> None:
        self._is_chat = is_chat
        name = "chatcmpl" if is_chat else "cmpl"
        self._head = {"id": f"{name}-mock-{number}", "created": int(time.time()), "model": model}

    def body(self, *choices: Json, is_whole: bool = False) -> Json:
        """A response, or a chunk of a stream; the one with the usage has no choice."""
        kind = f"chat.completion{'' if is_whole else '.chunk'}" if self._is_chat else "text_completion"
        return self._head | {"object": kind, "choices": list(choices)}

    def opening(self, prompt: Tokens | None) -> Json | None:
        """Builds the body before the first tokens; None for nothing."""
        if not self._is_chat:
            return None
        delta = {"role": "assistant", "content": ""}
        return self.body({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}) | {
            "prompt_token_ids": prompt
        }

    def text(
        self,
        text: str,
        prompt: Tokens | None,
        tokens: Tokens | None,
        finish_reason: str | None,
        *,
        is_whole: bool = False,
    ) -> Json:
        """A chunk of a stream, the first with the prompt, or a response that is not streamed."""
        choice = {"index": 0, "logprobs": None, "finish_reason": finish_reason, "token_ids": tokens}
        if not self._is_chat:
            return self.body(choice | {"text": text, "stop_reason": None, "prompt_token_ids": prompt})
        if finish_reason is not None:
            choice["stop_reason"] = None
        if not is_whole:
            return self.body(choice | {"delta": {"content": text}})
        message = {"role": "assistant", "content": text}
        return self.body(choice | {"message": message}, is_whole=True) | {"prompt_token_ids": prompt}


def usage(prompt_tokens: int, completion_tokens: int) -> Json:
    """The `usage` of a response or chunk: tokens so far."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def error_body(message: str, kind: str, code: int, param: str | None = None) -> Json:
    """The body of an HTTP error, and the data of an error event."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
