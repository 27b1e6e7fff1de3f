"""Records out of bytes, with what went wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.stream.reading import StreamReader, status_error
from loadtests.stream.timing import ErrorKind, StreamRecord
from tests.sizes import examples

CHUNK = '{"choices":[{"index":0,"text":" é","token_ids":[1,2]}]}'
STREAM = f": ping\n\ndata: {CHUNK}\n\ndata: {CHUNK}\n\ndata: [DONE]\n\n".encode()


def read(*pieces: bytes) -> StreamRecord:
    reader = StreamReader(1.0)
    for moment, piece in enumerate(pieces, start=2):
        reader.feed(piece, moment)
    return reader.end(100.0)


def test_chunks_have_the_moment_at_which_they_were_whole() -> None:
    record = read(STREAM[:20], STREAM[20:-20], STREAM[-20:])
    assert record.error is None
    assert (record.started, record.ended) == (1.0, 100.0)
    assert [(moment, chunk.token_ids) for moment, chunk in record.chunks] == [(3, (1, 2)), (4, (1, 2))]


def test_a_stream_that_is_cut_at_any_byte_is_told_from_a_whole_one() -> None:
    for place in range(len(STREAM)):
        record = read(STREAM[:place])
        assert record.error is ErrorKind.CUT
        assert len(record.chunks) <= 2
    assert read(STREAM).error is None


def test_an_error_within_the_stream_ends_it() -> None:
    error = b'data: {"error":{"message":"out of memory","type":"E","code":500}}\n\ndata: [DONE]\n\n'
    record = read(b"data: " + CHUNK.encode() + b"\n\n", error)
    assert (record.error, record.message) == (ErrorKind.ERROR_EVENT, "out of memory")
    assert len(record.chunks) == 1


def test_what_is_not_json_is_malformed() -> None:
    record = read(b"data: <html>\n\n", STREAM)
    assert record.error is ErrorKind.MALFORMED
    assert "<html>" in record.message
    assert record.chunks == ()


def test_nothing_counts_after_the_end_and_the_first_failure_is_kept() -> None:
    reader = StreamReader(1.0)
    reader.feed(STREAM, 2.0)
    assert reader.is_over
    reader.fail(ErrorKind.TIMEOUT, "late")
    reader.feed(STREAM, 3.0)
    record = reader.end(4.0)
    assert record.error is None
    assert len(record.chunks) == 2
    reader = StreamReader(1.0)
    reader.fail(ErrorKind.TIMEOUT, "late")
    reader.fail(ErrorKind.CONNECT, "refused")
    assert reader.end(2.0).error is ErrorKind.TIMEOUT


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (400, ErrorKind.HTTP_4XX),
        (429, ErrorKind.HTTP_4XX),
        (500, ErrorKind.HTTP_5XX),
        (503, ErrorKind.HTTP_5XX),
        (302, ErrorKind.MALFORMED),
    ],
)
def test_statuses_have_their_kinds(status: int, kind: ErrorKind | None) -> None:
    assert status_error(status) is kind


@settings(max_examples=examples(100, 3000), deadline=None)
@given(st.lists(st.sampled_from([STREAM[:70], b"data: ", b"\n\n", CHUNK.encode()]) | st.binary(max_size=8)))
def test_no_bytes_make_a_reader_raise(pieces: list[bytes]) -> None:
    read(*pieces)
