"""Figures of one request."""

import pytest

from loadtests.stream.chunks import StreamChunk, Usage
from loadtests.stream.timing import ErrorKind, StreamRecord, measure

FINAL = StreamChunk(usage=Usage(7, 9), has_choice=False)


def ids(count: int) -> StreamChunk:
    return StreamChunk("x" * count, tuple(range(count)))


def record(*chunks: tuple[float, StreamChunk]) -> StreamRecord:
    return StreamRecord(10.0, 13.0, chunks)


def test_tokens_not_chunks_make_the_time_per_token() -> None:
    """A server that speculates: 9 tokens in 3 chunks."""
    measures = measure(record((10.5, ids(1)), (11.0, ids(5)), (12.1, ids(3)), (12.5, FINAL)))
    assert measures.ttft == pytest.approx(0.5)
    assert measures.e2e == pytest.approx(2.1)
    assert measures.output_tokens == 9
    assert measures.prompt_tokens == 7
    assert measures.tpot == pytest.approx(1.6 / 8)
    assert measures.gaps == pytest.approx((0.5, 1.1))
    assert measures.tokens_per_chunk == (1, 5, 3)
    assert measures.output_tokens_per_second == pytest.approx(9 / 2.1)
    assert measures.error is None


def test_time_per_token_is_vllms_whatever_the_first_chunk_has() -> None:
    """`vllm bench serve` divides by the tokens but one."""
    measures = measure(record((10.5, ids(3)), (11.1, ids(6)), (11.2, FINAL)))
    assert measures.tpot == pytest.approx(0.6 / 8)


def test_continuous_usage_tells_tokens_per_chunk() -> None:
    chunks = [(10.0 + count, StreamChunk("a", usage=Usage(7, count))) for count in (1, 4, 9)]
    measures = measure(record((10.9, StreamChunk(usage=Usage(7, 0), is_opening=True)), *chunks, (20.0, FINAL)))
    assert measures.tokens_per_chunk == (1, 3, 5)
    assert measures.ttft == 1.0


def test_without_any_usage_token_ids_are_counted_and_without_both_nothing_is() -> None:
    assert measure(record((10.5, ids(2)), (11.0, ids(3)))).output_tokens == 5
    unknown = measure(record((10.5, StreamChunk("a")), (11.0, StreamChunk("b"))))
    assert unknown.output_tokens is None
    assert unknown.tpot is None
    assert unknown.output_tokens_per_second is None
    assert unknown.ttft == 0.5


def test_openings_and_chunks_without_tokens_are_not_what_a_reader_waits_for() -> None:
    opening, empty = StreamChunk(is_opening=True), StreamChunk(token_ids=(), finish_reason="stop")
    measures = measure(record((10.2, opening), (10.5, ids(1)), (11.0, ids(2)), (12.9, empty)))
    assert measures.ttft == 0.5
    assert measures.e2e == 1.0
    assert measures.tokens_per_chunk == (1, 2)


def test_a_single_token_has_no_time_per_token_and_all_at_once_take_none() -> None:
    single = measure(record((10.5, ids(1)), (10.5, StreamChunk(usage=Usage(7, 1), has_choice=False))))
    assert single.tpot is None
    assert single.gaps == ()
    at_once = measure(record((10.5, ids(9)), (10.6, FINAL)))
    assert at_once.tpot == 0


def test_a_request_that_failed_at_once_has_no_figures_but_its_error() -> None:
    measures = measure(StreamRecord(1.0, 2.0, (), ErrorKind.CONNECT, "refused"))
    assert (measures.error, measures.message) == (ErrorKind.CONNECT, "refused")
    assert (measures.ttft, measures.e2e, measures.tpot, measures.output_tokens) == (None, None, None, None)
