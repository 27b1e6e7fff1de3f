"""A client against a server that fails by plan, and its reading of broken streams."""

import socket
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from loadtests.stream.client import CHAT, COMPLETIONS, StreamingClient, StreamReader
from loadtests.stream.timing import ErrorKind, Measures, StreamRecord, measure
from tests.mock_server import MockOptions, MockServer

NUM_TOKENS = 20
PROMPT = {"prompt": "def main"}
MESSAGES = {"messages": [{"role": "user", "content": "Write a main function."}]}


def body(**more: object) -> dict[str, object]:
    return {"model": "mock", "max_tokens": NUM_TOKENS} | more


@pytest.fixture(scope="module")
def sound() -> Iterator[StreamingClient]:
    """Client of a server that answers 60 ms after the request, and then every 20 ms with 2.5 tokens."""
    with MockServer(MockOptions(port=0, ttft_ms=60, itl_ms=20, tokens_per_chunk=2.5)) as server:
        client = StreamingClient(server.base_url)
        yield client
        client.close()


@pytest.mark.parametrize(("path", "asked"), [(COMPLETIONS, PROMPT), (CHAT, MESSAGES)], ids=["completion", "chat"])
def test_a_stream_is_measured_in_tokens(sound: StreamingClient, path: str, asked: dict[str, object]) -> None:
    found = measure(sound.ask(path, body(**asked)))
    assert found.error is None
    assert found.output_tokens == NUM_TOKENS
    assert found.tokens_per_chunk is not None
    assert sum(found.tokens_per_chunk) == NUM_TOKENS
    # Pieces that came together would have no gaps; on a busy machine all of it may take longer.
    assert found.ttft is not None
    assert found.ttft >= 0.06
    assert len(found.gaps) == len(found.tokens_per_chunk) - 1
    assert found.tpot is not None
    assert found.tpot >= 0.02 * len(found.gaps) / (NUM_TOKENS - 1) * 0.9


def test_whoever_leaves_has_what_came_before(sound: StreamingClient) -> None:
    found = measure(sound.ask(COMPLETIONS, body(**PROMPT), max_pieces=3))
    assert (found.error, found.message) == (ErrorKind.CUT, "the client left")
    assert found.output_tokens is not None
    assert 0 < found.output_tokens < NUM_TOKENS
    assert measure(sound.ask(COMPLETIONS, body(**PROMPT))).error is None


def test_failures_are_told_apart() -> None:
    with MockServer(MockOptions(port=0, ttft_ms=0, itl_ms=0, error_rate=1)) as server:
        client = StreamingClient(server.base_url)
        found = [measure(client.ask(COMPLETIONS, body(**PROMPT))) for _ in range(3)]
        client.close()
    assert [one.error for one in found] == [ErrorKind.HTTP_5XX, ErrorKind.ERROR_EVENT, ErrorKind.CUT]
    assert all(one.message for one in found)


def test_a_request_that_is_refused_says_why(sound: StreamingClient) -> None:
    found = measure(sound.ask(COMPLETIONS, body(**PROMPT, max_tokens=-1)))
    assert found.error == ErrorKind.HTTP_4XX
    assert "max_tokens" in found.message


def test_where_nobody_listens_no_connection_comes_about() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        found = ask_once(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert found.error == ErrorKind.CONNECT


def test_a_server_that_says_nothing_more_is_not_waited_for() -> None:
    with MockServer(MockOptions(port=0, ttft_ms=0, itl_ms=5000)) as server:
        found = ask_once(server.base_url, timeout=0.3)
    assert (found.error, found.output_tokens) == (ErrorKind.TIMEOUT, 1)


def test_a_connection_is_not_used_again_after_a_pause() -> None:
    peers, now = [], [0.0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            peers.append(self.client_address)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(STREAM)))
            self.end_headers()
            self.wfile.write(STREAM)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = StreamingClient(f"http://127.0.0.1:{server.server_port}", clock=lambda: now[0])
        for pause in (0, 1, 3):
            now[0] += pause
            assert measure(client.ask(COMPLETIONS, body(**PROMPT))).error is None
        client.close()
        server.shutdown()
    assert peers[0] == peers[1] != peers[2]


def ask_once(url: str, timeout: float = 10.0) -> Measures:
    client = StreamingClient(url, timeout=timeout)
    with closing(client):
        return measure(client.ask(COMPLETIONS, body(**PROMPT)))


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
