"""What the events of a completion or a chat say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from loadtests.stream.sse import Event


class ChunkError(ValueError):
    """An event that no OpenAI-compatible server sends; str() says what is wrong with it."""


@dataclass(frozen=True)
class Usage:
    """Tokens of a request so far."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Chunk:
    """A chunk of a stream.

    Attributes:
        text: what was written: the text, or a chat's content, or its reasoning. May be empty though there are tokens,
            such as special ones or the first half of a character.
        token_ids: of this chunk; None if the server does not tell (`return_token_ids` makes vLLM tell).
        usage: tokens up to and with this chunk; None if the server does not tell.
        finish_reason: why the text ended; None if it goes on.
        has_choice: whether it is part of the text. The last chunk that carries the usage is not.
        is_opening: whether it only says whose turn it is, as a chat's first chunk does.
    """

    text: str = ""
    token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    has_choice: bool = True
    is_opening: bool = False


@dataclass(frozen=True)
class ErrorEvent:
    """An error that came within the stream.

    Attributes:
        message: for people.
        type: the error's class by its name; empty if not told.
        code: as an HTTP status, or whatever the server says; None if not told.
    """

    message: str
    type: str = ""
    code: int | str | None = None


def read_event(event: Event) -> Chunk | ErrorEvent | None:
    """Reads an event of `/v1/completions` or `/v1/chat/completions`, with one choice (n = 1).

    Returns:
        None for `[DONE]`.

    Raises:
        ChunkError: it is neither JSON nor `[DONE]`, or not a chunk.
    """
    if event.is_done:
        return None
    try:
        body = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise ChunkError(f"not JSON ({_short(error)}): {_short(event.data)}") from None
    if not isinstance(body, dict):
        raise ChunkError(f"not a JSON object: {_short(event.data)}")
    try:
        # Some servers name the event and put the error into its data as it is.
        if body.get("error") is not None or event.name == "error":
            return _error(body.get("error") or body)
        return _chunk(body)
    except ChunkError as error:
        raise ChunkError(f"{error}: {_short(event.data)}") from None


def _error(told: object) -> ErrorEvent:
    if not isinstance(told, dict):
        return ErrorEvent(str(told))
    code = told.get("code")
    message, kind = told.get("message"), told.get("type")
    return ErrorEvent(
        message if isinstance(message, str) else json.dumps(told),
        kind if isinstance(kind, str) else "",
        code if isinstance(code, int | str) else None,
    )


def _chunk(body: Mapping[str, Any]) -> Chunk:
    choices = body.get("choices")
    if not isinstance(choices, list):
        raise ChunkError("no list of `choices`")
    usage = _usage(body.get("usage"))
    if not choices:
        return Chunk(usage=usage, has_choice=False)
    choice = choices[0]
    if len(choices) > 1 or not isinstance(choice, dict) or choice.get("index", 0) != 0:
        raise ChunkError("more than one choice, or none that can be read (ask for n = 1)")
    finish_reason = choice.get("finish_reason")
    if not isinstance(finish_reason, str | None):
        raise ChunkError("`finish_reason` is not a string")
    token_ids = _token_ids(choice.get("token_ids"))
    if "delta" not in choice:
        return Chunk(_text(choice, "text"), token_ids, usage, finish_reason)
    delta = choice["delta"]
    if not isinstance(delta, dict):
        raise ChunkError("`delta` is not an object")
    text = _text(delta, "content") or _text(delta, "reasoning") or _text(delta, "reasoning_content")
    says_more = text or token_ids or finish_reason is not None or delta.get("tool_calls")
    return Chunk(text, token_ids, usage, finish_reason, is_opening="role" in delta and not says_more)


def _text(part: Mapping[str, Any], key: str) -> str:
    text = part.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ChunkError(f"`{key}` is not a string")
    return text


def _token_ids(told: object) -> tuple[int, ...] | None:
    if told is None:
        return None
    if not isinstance(told, list) or not all(_is_count(token) for token in told):
        raise ChunkError("`token_ids` is not a list of token ids")
    return tuple(told)


def _usage(told: object) -> Usage | None:
    if told is None:
        return None
    if not isinstance(told, dict):
        raise ChunkError("`usage` is not an object")
    prompt_tokens, completion_tokens = told.get("prompt_tokens"), told.get("completion_tokens")
    if not (_is_count(prompt_tokens) and _is_count(completion_tokens)):
        raise ChunkError("`usage` does not count tokens")
    return Usage(prompt_tokens, completion_tokens)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _short(what: object) -> str:
    text = str(what)
    return text if len(text) <= 200 else f"{text[:200]}..."
