"""Reads server-sent events of a completion or a chat from the pieces of a byte stream, as chunks.

A parser of our own, since every event needs its arrival time: it is fed pieces as they are read and returns the events
that each one completes.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_MOST_SHOWN = 200
Count = Annotated[int, Field(ge=0)]


class EventParser:
    """Collects the data of events. Lines end with LF or CRLF; other fields and comments (keep-alives) are ignored.

    Bytes that are not UTF-8 become U+FFFD. The events do not depend on how the bytes are cut into pieces.
    """

    def __init__(self) -> None:
        self._line, self._data = b"", list[str]()

    def feed(self, piece: bytes) -> list[str]:
        """Takes the next bytes and returns the data of the events that they complete, in order."""
        *lines, self._line = (self._line + piece).split(b"\n")
        events = []
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text.startswith("data:"):
                self._data.append(text.removeprefix("data:").removeprefix(" "))
            elif not text and self._data:
                events.append("\n".join(self._data))
                self._data = []
        return events


class ChunkError(ValueError):
    """An event that breaks OpenAI's protocol; str() says how."""


@dataclass(frozen=True)
class Usage:
    """Tokens of a request so far."""

    prompt_tokens: Count
    completion_tokens: Count


@dataclass(frozen=True)
class StreamChunk:
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


class _Json(BaseModel):
    model_config = ConfigDict(strict=True)


class _Delta(_Json):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class _Choice(_Json):
    index: Literal[0] = 0
    text: str | None = None
    delta: _Delta | None = None
    token_ids: tuple[Count, ...] | None = None
    finish_reason: str | None = None


class _Body(_Json):
    # One choice (n = 1), or none beside the usage.
    choices: Annotated[list[_Choice], Field(max_length=1)] | None = None
    usage: Usage | None = None
    error: Any = None


def read_event(data: str) -> StreamChunk | ErrorEvent | None:
    """Reads an event of `/v1/completions` or `/v1/chat/completions`, with one choice (n = 1).

    Returns:
        None for `[DONE]`.

    Raises:
        ChunkError: the event is neither JSON nor `[DONE]`, or not a chunk.
    """
    if data.strip() == "[DONE]":
        return None
    try:
        body = _Body.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "event"
        raise ChunkError(f"{where}: {first['msg'][:_MOST_SHOWN]}: {data[:_MOST_SHOWN]}") from None
    if body.error is not None:
        message = body.error.get("message") if isinstance(body.error, dict) else str(body.error)
        return ErrorEvent(message if isinstance(message, str) else json.dumps(body.error))
    if body.choices is None:
        raise ChunkError(f"no choices: {data[:_MOST_SHOWN]}")
    if not body.choices:
        return StreamChunk(usage=body.usage, has_choice=False)
    [choice] = body.choices
    delta = choice.delta
    if delta is None:
        return StreamChunk(choice.text or "", choice.token_ids, body.usage, choice.finish_reason)
    text = delta.content or delta.reasoning or delta.reasoning_content or ""
    has_content = text or choice.token_ids or choice.finish_reason is not None or delta.tool_calls
    is_opening = delta.role is not None and not has_content
    return StreamChunk(text, choice.token_ids, body.usage, choice.finish_reason, is_opening=is_opening)
