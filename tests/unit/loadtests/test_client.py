"""A client against a server that fails by plan, and the figures of its streams."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.client import (
    CHAT,
    COMPLETIONS,
    ErrorKind,
    Measures,
    StreamChunk,
    StreamError,
    StreamingClient,
    StreamRecord,
    Usage,
    measure,
    read_event,
)
from tests.sizes import examples
from tests.unit.loadtests.mock import mock

NUM_TOKENS = 20
PROMPT = {"prompt": "def main"}
MESSAGES = {"messages": [{"role": "user", "content": "Write a main function."}]}


def body(**more: object) -> dict[str, object]:
    return {"model": "mock", "max_tokens": NUM_TOKENS} | PROMPT | more


def ask_once(url: str, timeout: float = 10.0) -> Measures:
    with closing(StreamingClient(url, timeout=timeout)) as client:
        return measure(client.ask(COMPLETIONS, body()))


@pytest.fixture(scope="module")
def sound() -> Iterator[StreamingClient]:
    """Client of a server that answers 60 ms after the request, and then every 20 ms with 2.5 tokens."""
    with mock(ttft_ms=60, itl_ms=20) as server, closing(StreamingClient(server.base_url)) as client:
        yield client


@pytest.mark.parametrize(("path", "asked"), [(COMPLETIONS, body()), (CHAT, body(**MESSAGES))])
def test_a_stream_is_measured_in_tokens(sound: StreamingClient, path: str, asked: dict[str, object]) -> None:
    found = measure(sound.ask(path, asked))
    assert (found.error, found.output_tokens) == (None, NUM_TOKENS)
    assert found.tokens_per_chunk is not None
    assert sum(found.tokens_per_chunk) == NUM_TOKENS
    # Pieces that came together would have no gaps; on a busy machine all of it may take longer.
    assert found.ttft is not None
    assert found.ttft >= 0.06
    assert len(found.gaps) == len(found.tokens_per_chunk) - 1
    assert found.tpot is not None
    assert found.tpot >= 0.02 * len(found.gaps) / (NUM_TOKENS - 1) * 0.9


def test_a_client_that_leaves_has_what_came_before(sound: StreamingClient) -> None:
    found = measure(sound.ask(COMPLETIONS, body(), max_chunks=3))
    assert (found.error, found.message) == (ErrorKind.CUT, "the client left")
    assert found.output_tokens is not None
    assert 0 < found.output_tokens < NUM_TOKENS
    assert measure(sound.ask(COMPLETIONS, body())).error is None


def test_a_connection_is_not_used_again_after_a_pause(sound: StreamingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    sound.ask(COMPLETIONS, body())
    monkeypatch.setattr(sound._session, "close", lambda: closed.append(True))
    sound.ask(COMPLETIONS, body())
    assert not closed
    monkeypatch.setattr("loadtests.client._MAX_IDLE", 0.0)
    sound.ask(COMPLETIONS, body())
    assert closed


def test_failures_are_told_apart(sound: StreamingClient) -> None:
    with mock(error_rate=1) as server, closing(StreamingClient(server.base_url)) as client:
        found = [measure(client.ask(COMPLETIONS, body())) for _ in range(3)]
    assert [one.error for one in found] == [ErrorKind.HTTP_5XX, ErrorKind.ERROR_EVENT, ErrorKind.CUT]
    assert all(one.message for one in found)
    refused = measure(sound.ask(COMPLETIONS, body(max_tokens=-1)))
    assert (refused.error, "max_tokens" in refused.message) == (ErrorKind.HTTP_4XX, True)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        assert ask_once(f"http://127.0.0.1:{taken.getsockname()[1]}").error == ErrorKind.CONNECT
    with mock(ttft_ms=0, itl_ms=5000) as server:
        silent = ask_once(server.base_url, timeout=0.3)
    assert silent.error == ErrorKind.TIMEOUT
    assert silent.output_tokens


OPENING = {"role": "assistant", "content": ""}
USAGE = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}


@pytest.mark.parametrize(
    ("event", "chunk"),
    [
        ({"choices": [{"text": " a", "token_ids": [5]}], "usage": USAGE}, StreamChunk(True, (5,), Usage(3, 8))),
        ({"choices": [{"delta": {"reasoning": "a"}}]}, StreamChunk(True)),
        ({"choices": [{"delta": OPENING}]}, StreamChunk(False)),
        ({"choices": [{"delta": OPENING | {"content": "a"}}]}, StreamChunk(True)),
        ({"choices": [{"delta": OPENING, "token_ids": [1]}]}, StreamChunk(True, (1,))),
        ({"choices": [{"delta": OPENING, "finish_reason": "stop"}]}, StreamChunk(True)),
        ({"choices": [], "usage": USAGE}, StreamChunk(False, usage=Usage(3, 8))),
    ],
)
def test_opening_and_last_usage_are_no_output(event: object, chunk: StreamChunk) -> None:
    assert read_event(json.dumps(event)) == chunk


@pytest.mark.parametrize(
    "data",
    ["{", "[" * 100_000, "[]", "{}", '{"choices": [{}, {}]}', '{"choices": [], "usage": {"prompt_tokens": 3}}'],
)
def test_no_chunk_is_an_error_that_shows_it(data: str) -> None:
    with pytest.raises(StreamError) as caught:
        read_event(data)
    assert caught.value.kind == ErrorKind.MALFORMED
    assert data[:100] in str(caught.value)


KEYS = ["choices", "usage", "error", "delta", "text", "token_ids", "role", "finish_reason"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=8,
)


@settings(max_examples=examples(200, 5000), deadline=None)
@given(JSON | st.fixed_dictionaries({"choices": st.lists(JSON, max_size=1)}))
def test_no_json_raises_anything_else(event: object) -> None:
    with suppress(StreamError):
        read_event(json.dumps(event))


FINAL = StreamChunk(False, usage=Usage(7, 9))


def ids(count: int) -> StreamChunk:
    return StreamChunk(True, tuple(range(count)))


def measured(*chunks: tuple[float, StreamChunk]) -> Measures:
    return measure(StreamRecord(10.0, 3.0, chunks))


def test_tokens_not_chunks_make_the_time_per_token() -> None:
    """As `vllm bench serve`: the tokens but one, whatever the first chunk has."""
    found = measured((0.5, ids(1)), (1.0, ids(5)), (2.1, ids(3)), (2.5, FINAL))
    assert (found.started, found.ended, found.ttft, found.e2e) == (10.0, 13.0, 0.5, 2.1)
    assert (found.prompt_tokens, found.output_tokens, found.tokens_per_chunk) == (7, 9, (1, 5, 3))
    assert found.tpot == pytest.approx(1.6 / 8)
    assert found.gaps == pytest.approx((0.5, 1.1))
    assert found.output_tokens_per_second == pytest.approx(9 / 2.1)
    assert measured((0.5, ids(3)), (1.1, ids(6)), (1.2, FINAL)).tpot == pytest.approx(0.6 / 8)
    assert measured((0.5, ids(9)), (0.6, FINAL)).tpot == 0
    assert measured((0.5, ids(1))).tpot is None


def test_usages_serve_where_ids_are_missing_and_chunks_without_tokens_do_not_count() -> None:
    first, rest = (StreamChunk(True, usage=Usage(7, count)) for count in (2, 9))
    found = measured((0.1, StreamChunk(False)), (0.5, first), (0.8, first), (1.0, rest), (1.2, FINAL))
    assert (found.tokens_per_chunk, found.output_tokens) == ((2, 7), 9)
    assert found.gaps == pytest.approx((0.5,))
    unknown = measured((0.5, StreamChunk(True)), (0.9, StreamChunk(True)))
    assert (unknown.tokens_per_chunk, unknown.output_tokens, unknown.e2e) == (None, None, 0.9)
    assert (measured().ttft, measured().output_tokens) == (None, None)
