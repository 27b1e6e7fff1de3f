"""Reads the events of a completion or a chat into chunks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtests.stream.sse import Event


class ChunkError(ValueError):
    """An event that breaks OpenAI's protocol; str() says how."""


@dataclass(frozen=True)
class Usage:
    """Tokens of a request so far."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Chunk:
    """A chunk of a stream.

    Attributes:
        text: completion text, chat content or reasoning. May be empty although there are tokens, such as special ones.
        token_ids: tokens of this chunk; None if not reported (vLLM reports them with `return_token_ids`).
        usage: token counts up to this chunk; None if not reported.
        finish_reason: why the response ended; None before its end.
        has_choice: whether the chunk belongs to the text. The last chunk, with the usage, does not.
        is_opening: whether the chunk only names the role, as a chat's first one does.
    """

    text: str = ""
    token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    has_choice: bool = True
    is_opening: bool = False


@dataclass(frozen=True)
class ErrorEvent:
    """An error that came within the stream, with its message."""

    message: str


def read_event(event: Event) -> Chunk | ErrorEvent | None:
    """Reads an event of `/v1/completions` or `/v1/chat/completions`, with one choice (n = 1).

    Returns:
        None for `[DONE]`.

    Raises:
        ChunkError: the event is neither JSON nor `[DONE]`, or not a chunk.
    """
    if event.is_done:
        return None
    try:
        body = json.loads(event.data)
        if not isinstance(body, dict):
            raise ChunkError("not a JSON object")
        error = body.get("error")
        # Some servers name the event, and its data are the error itself.
        if error is not None or event.name == "error":
            error = body if error is None else error
            message = error.get("message") if isinstance(error, dict) else str(error)
            return ErrorEvent(message if isinstance(message, str) else json.dumps(error))
        return _chunk(body)
    except (ValueError, RecursionError) as error:
        kind = "" if isinstance(error, ChunkError) else "not JSON: "
        raise ChunkError(f"{kind}{_short(error)}: {_short(event.data)}") from None


def _chunk(body: Mapping[str, Any]) -> Chunk:
    choices = _checked("choices", body.get("choices"), list)
    usage = _checked("usage", body.get("usage"), dict | None)
    counts = None
    if usage is not None:
        counts = Usage(*(_checked(name, usage.get(name), int) for name in ("prompt_tokens", "completion_tokens")))
    if not choices:
        return Chunk(usage=counts, has_choice=False)
    choice = _checked("choice", choices[0], dict)
    if len(choices) > 1 or choice.get("index", 0) != 0:
        raise ChunkError("more than one choice (ask for n = 1)")
    finish_reason = _checked("finish_reason", choice.get("finish_reason"), str | None)
    ids = _checked("token_ids", choice.get("token_ids"), list | None)
    token_ids = None if ids is None else tuple(_checked("token_ids", token, int) for token in ids)
    if "delta" not in choice:
        return Chunk(_text(choice, "text"), token_ids, counts, finish_reason)
    delta = _checked("delta", choice["delta"], dict)
    text = _text(delta, "content") or _text(delta, "reasoning") or _text(delta, "reasoning_content")
    has_content = text or token_ids or finish_reason is not None or delta.get("tool_calls")
    return Chunk(text, token_ids, counts, finish_reason, is_opening="role" in delta and not has_content)


def _text(part: Mapping[str, Any], key: str) -> str:
    text: str | None = _checked(key, part.get(key), str | None)
    return text or ""


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value, if it is of a kind; numbers must be counts."""
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise ChunkError(f"`{name}` is {_short(value)}")
    return value


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
