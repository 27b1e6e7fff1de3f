"""The JSON of the two APIs, field by field as vLLM 0.32 writes it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What all parts of a response say about it.

    Attributes:
        created: seconds since the epoch.
    """

    id: str
    created: int
    model: str


class Wire(Protocol):
    """How one API words a response.

    `prompt` and `tokens` are token ids where the client requested them, else None. `finish_reason` is None before the
    end.
    """

    def opening(self, prompt: Sequence[int] | None) -> Json | None:
        """What comes before the first tokens; None for nothing."""

    def delta(
        self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str | None
    ) -> Json:
        """A chunk of a stream. `prompt` is given with the first one only."""

    def trailer(self) -> Json:
        """The chunk after the last tokens that carries the usage."""

    def whole(self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str) -> Json:
        """A response that is not streamed."""


class CompletionWire:
    """`/v1/completions`."""

    def __init__(self, identity: Identity) -> None:
        self._head: Json = {
            "id": identity.id,
            "object": "text_completion",
            "created": identity.created,
            "model": identity.model,
        }

    def opening(self, prompt: Sequence[int] | None) -> Json | None:
        return None

    def delta(
        self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str | None
    ) -> Json:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "prompt_token_ids": _list(prompt),
            "token_ids": _list(tokens),
        }
        return self._head | {"choices": [choice]}

    def trailer(self) -> Json:
        return self._head | {"choices": []}

    def whole(self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str) -> Json:
        return self.delta(text, prompt, tokens, finish_reason)


class ChatWire:
    """`/v1/chat/completions`."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def _body(self, kind: str, choices: list[Json]) -> Json:
        one = self._identity
        return {"id": one.id, "object": kind, "created": one.created, "model": one.model, "choices": choices}

    def opening(self, prompt: Sequence[int] | None) -> Json | None:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._body("chat.completion.chunk", [choice]) | {"prompt_token_ids": _list(prompt)}

    def delta(
        self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str | None
    ) -> Json:
        choice = {
            "index": 0,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": finish_reason,
            "token_ids": _list(tokens),
        }
        if finish_reason is not None:
            choice["stop_reason"] = None
        return self._body("chat.completion.chunk", [choice])

    def trailer(self) -> Json:
        return self._body("chat.completion.chunk", [])

    def whole(self, text: str, prompt: Sequence[int] | None, tokens: Sequence[int] | None, finish_reason: str) -> Json:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "token_ids": _list(tokens),
        }
        return self._body("chat.completion", [choice]) | {"prompt_token_ids": _list(prompt)}


def usage(prompt_tokens: int, completion_tokens: int) -> Json:
    """The `usage` of a response or chunk: tokens so far."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def error_body(message: str, kind: str, code: int, param: str | None = None) -> Json:
    """The body of an HTTP error, and the data of an error event."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _list(tokens: Sequence[int] | None) -> list[int] | None:
    return None if tokens is None else list(tokens)
