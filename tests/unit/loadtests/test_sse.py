"""The parser of server-sent events: by example, and against every way to split a stream."""

from itertools import accumulate, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.stream.sse import Ending, Event, EventParser
from tests.sizes import examples

BLOCKS = [
    part.encode()
    for part in (
        ": ping\n\n",
        'data: {"text":" p語é"}\n\n',
        "event: error\r\ndata: {\r\ndata:   }\r\nid: 7\r\n\r\n",
        "data:tight\r\r",
        "retry: 3\r\r",
        "data\n\n",
        "unknown: x\ndata: [DONE]\n\n",
    )
]
STREAM = b"".join(BLOCKS)
EVENTS = [Event('{"text":" p語é"}'), Event("{\n  }", "error"), Event("tight"), Event(""), Event("[DONE]")]

# Pieces that matter to the parser, and any bytes between them.
PARTS = [
    b"data: ",
    b"data",
    b"event:",
    b":",
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"[DONE]",
    b"\xef\xbb\xbf",
    "é語".encode(),
]
STREAMS = st.lists(st.sampled_from(PARTS) | st.binary(max_size=3)).map(b"".join)


def parse(*pieces: bytes) -> tuple[list[Event], Ending]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)], parser.ending


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(places)]


def by_the_book(stream: bytes) -> list[Event]:
    """The standard's rules for a whole stream, word for word."""
    text = stream.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, data, name = [], "", ""
    # What follows the last line end is no line yet.
    for line in text.split("\n")[:-1]:
        if not line:
            if data:
                events.append(Event(data[:-1], name))
            data = name = ""
            continue
        field, colon, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if colon and not field:
            continue
        if field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
    return events


def test_an_event_is_given_out_as_soon_as_its_empty_line_has_come() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\r\n\r") == [Event("a")]
    assert parser.ending is Ending.OPEN
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [Event("b")]


def test_a_cut_at_any_byte_loses_only_what_was_not_whole() -> None:
    # Between two blocks; after a comment's own line; and after the CR of an empty line that ends with CRLF.
    between = set(accumulate(map(len, BLOCKS), initial=0)) | {len(": ping\n")}
    between |= {place for place in range(len(STREAM)) if STREAM[:place].endswith(b"\r\n\r")}
    for place in range(len(STREAM)):
        events, ending = parse(STREAM[:place])
        assert events == EVENTS[: len(events)]
        assert ending is (Ending.OPEN if place in between else Ending.UNFINISHED)


@settings(max_examples=examples(200, 5000), deadline=None)
@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_any_bytes_in_any_pieces_give_what_the_standard_says(stream: bytes, cuts: list[int]) -> None:
    pieces = split(stream, cuts)
    assert parse(*pieces) == parse(stream)
    assert parse(*pieces)[0] == by_the_book(stream)
