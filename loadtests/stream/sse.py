"""Server-sent events out of bytes that come in any pieces."""

import re
from dataclasses import dataclass
from enum import StrEnum

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Event:
    """A server-sent event.

    Attributes:
        data: of all its data lines, with a line feed between them.
        name: its `event` field; empty for none.
    """

    data: str
    name: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it is OpenAI's mark for the end of a stream."""
        return self.data.strip() == "[DONE]"


class Ending(StrEnum):
    """How a stream stands where it ends.

    DONE: its last event was `[DONE]`. OPEN: it ends between two events, before `[DONE]`. UNFINISHED: it ends within an
    event, or within a line. Whoever waits for `[DONE]` was cut off in the last two.
    """

    DONE = "done"
    OPEN = "open"
    UNFINISHED = "unfinished"


class EventParser:
    """Parses a stream by WHATWG's rules (HTML, "Server-sent events", 9.2.6).

    Lines end with CR, LF or CRLF; lines that begin with a colon are comments, as keep-alives are; fields that are not
    known count for nothing. Bytes that are not UTF-8 become U+FFFD, so no bytes whatever are an error. How they are cut
    into pieces makes no difference to the events. A line is kept until it ends, however long it is.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        # Of what is pending, so much has no line end: a long line in small pieces is looked through once.
        self._searched = 0
        self._skips_line_feed = False
        self._is_first_line = True
        self._data: list[str] = []
        self._name = ""
        self._has_fields = False
        self._is_done = False

    def feed(self, piece: bytes) -> list[Event]:
        """Takes the next bytes.

        Returns:
            The events that they complete, in order.
        """
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
        """How the stream stands, if these were all of its bytes."""
        if self._pending or self._has_fields:
            return Ending.UNFINISHED
        return Ending.DONE if self._is_done else Ending.OPEN
