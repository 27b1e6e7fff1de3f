"""Parses server-sent events from the pieces of a byte stream.

A parser of our own, since every event needs its arrival time: it is fed pieces as they are read and returns the events
that each one completes. sseclient-py and httpx-sse iterate over whole lines of a response that they read themselves;
httpx-sse holds a line back that ends in CR until more comes. Neither tells whether a stream was cut within an event.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
    """State of a stream at its end.

    DONE: the last event was `[DONE]`. OPEN: the stream ends between two events, before `[DONE]`. UNFINISHED: it ends
    within an event or a line.
    """

    DONE = "done"
    OPEN = "open"
    UNFINISHED = "unfinished"


class EventParser:
    """Parses a stream by WHATWG's rules (HTML, "Server-sent events", 9.2.6).

    Lines end with CR, LF or CRLF. Comments (keep-alives) and unknown fields are ignored. Bytes that are not UTF-8
    become U+FFFD, so no input is an error. The events do not depend on how the bytes are cut into pieces.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        # Pending bytes known to have no line end: a long line in small pieces is searched once.
        self._searched = 0
        self._skips_line_feed = False
        self._is_first_line = True
        self._data: list[str] = []
        self._name = ""
        self._has_fields = False
        self._is_done = False

    def feed(self, piece: bytes) -> list[Event]:
        """Takes the next bytes and returns the events that they complete, in order."""
        pending = self._pending
        pending += piece
        if self._skips_line_feed and pending:
            # The other half of a CRLF: its line ended with the CR.
            if pending.startswith(b"\n"):
                del pending[:1]
            self._skips_line_feed = False
        events = []
        begin = 0
        while (end := _LINE_END.search(pending, max(begin, self._searched))) is not None:
            event = self._take_line(bytes(pending[begin : end.start()]))
            if event is not None:
                events.append(event)
            begin = end.end()
            self._skips_line_feed = begin == len(pending) and end.group() == b"\r"
        del pending[:begin]
        self._searched = len(pending)
        return events

    def _take_line(self, raw: bytes) -> Event | None:
        if self._is_first_line:
            self._is_first_line = False
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if not raw:
            return self._dispatch()
        if raw.startswith(b":"):
            return None
        # No byte of a longer character looks like a line end, so a line holds whole ones.
        field, _, value = raw.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        self._has_fields = True
        return None

    def _dispatch(self) -> Event | None:
        event = Event("\n".join(self._data), self._name) if self._data else None
        self._data, self._name, self._has_fields = [], "", False
        if event is not None:
            self._is_done = event.is_done
        return event

    @property
    def ending(self) -> Ending:
        """State of the stream, if these were all of its bytes."""
        if self._pending or self._has_fields:
            return Ending.UNFINISHED
        return Ending.DONE if self._is_done else Ending.OPEN
