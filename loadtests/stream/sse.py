"""Parses server-sent events from the pieces of a byte stream.

A parser of our own, since every event needs its arrival time: it is fed pieces as they are read and returns the events
that each one completes. sseclient-py and httpx-sse iterate over whole lines of a response that they read themselves;
httpx-sse holds a line back that ends in CR until more comes. Neither reports whether a stream was cut within an event.
"""

import codecs
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Event:
    """A server-sent event.

    Attributes:
        data: its data lines, joined by line feeds.
        name: its `event` field; empty for none.
    """

    data: str
    name: str = ""

    @property
    def is_done(self) -> bool:
        """Whether the event is OpenAI's end of a stream."""
        return self.data.strip() == "[DONE]"


class Ending(StrEnum):
    """State of a stream at its end: after `[DONE]`, between two events, or within an event or a line."""

    DONE = "done"
    OPEN = "open"
    UNFINISHED = "unfinished"


class EventParser:
    """Parses a stream by WHATWG's rules (HTML, "Server-sent events", 9.2.6).

    Lines end with CR, LF or CRLF. Comments (keep-alives) and unknown fields are ignored. Bytes that are not UTF-8
    become U+FFFD, so no input is an error. The events do not depend on how the bytes are cut into pieces.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        # Pieces of the line that has not ended; joined once, as a long line may come in small pieces.
        self._line: list[str] = []
        self._ends_with_return = False
        self._data: list[str] = []
        self._name = ""
        self._has_fields = False
        self._is_done = False

    def feed(self, piece: bytes) -> list[Event]:
        """Takes the next bytes and returns the events that they complete, in order."""
        text = self._decoder.decode(piece)
        if not text:
            return []
        if self._ends_with_return:
            # The other half of a CRLF: its line ended with the CR.
            text = text.removeprefix("\n")
        self._ends_with_return = text.endswith("\r")
        first, *others = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line.append(first)
        events = []
        for begun in others:
            event = self._take_line("".join(self._line))
            if event is not None:
                events.append(event)
            self._line = [begun]
        return events

    def _take_line(self, line: str) -> Event | None:
        if not line:
            event = Event("\n".join(self._data), self._name) if self._data else None
            self._data, self._name, self._has_fields = [], "", False
            if event is not None:
                self._is_done = event.is_done
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        self._has_fields = self._has_fields or bool(field)
        return None

    @property
    def ending(self) -> Ending:
        """State of the stream, if these were all of its bytes."""
        if any(self._line) or self._decoder.getstate()[0] or self._has_fields:
            return Ending.UNFINISHED
        return Ending.DONE if self._is_done else Ending.OPEN
