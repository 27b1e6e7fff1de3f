"""Sends a request and records when each chunk of its stream arrives."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import requests
import urllib3

from loadtests.stream.chunks import ChunkError, ErrorEvent, EventParser, StreamChunk, read_event
from loadtests.stream.timing import ErrorKind, StreamRecord

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# Seconds after which a connection is not used again. vLLM closes one that was idle for 5 seconds, and a request that is
# sent at that moment gets no response.
_MAX_IDLE = 2.0
# Characters of an error's body that go into its message.
_MOST_MESSAGE = 500


class StreamReader:
    """Collects one response's chunks and its error. Times are seconds of one monotonic clock.

    Attributes:
        is_over: whether `[DONE]` came or the stream failed; later bytes are ignored.
    """

    def __init__(self, started: float) -> None:
        """Starts with the time at which the request was sent."""
        self.is_over = False
        self._started = started
        self._parser = EventParser()
        self._chunks: list[tuple[float, StreamChunk]] = []
        self._error: ErrorKind | None = None
        self._message = ""

    def feed(self, piece: bytes, now: float) -> None:
        """Takes bytes of the body of a response with status 200."""
        for event in self._parser.feed(piece):
            if self.is_over:
                return
            try:
                content = read_event(event)
            except ChunkError as error:
                self.fail(ErrorKind.MALFORMED, str(error))
                return
            if isinstance(content, ErrorEvent):
                self.fail(ErrorKind.ERROR_EVENT, content.message)
            elif content is None:
                self.is_over = True
            else:
                self._chunks.append((now, content))

    def fail(self, error: ErrorKind, message: str) -> None:
        """Records the first failure; after `[DONE]` nothing counts as one."""
        if not self.is_over:
            self.is_over = True
            self._error, self._message = error, message

    def end(self, now: float) -> StreamRecord:
        """The record of a response that sends nothing more."""
        if not self.is_over:
            self.fail(ErrorKind.CUT, "the stream ended before [DONE]")
        return StreamRecord(self._started, now, tuple(self._chunks), self._error, self._message)


class StreamingClient:
    """One user of an OpenAI-compatible server; the connection is kept between requests without a long pause."""

    def __init__(
        self, base_url: str, api_key: str = "", timeout: float = 120.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Connects with the first request.

        Args:
            base_url: scheme, host and port, without "/v1".
            api_key: empty for none.
            timeout: most seconds to wait for a connection, and from one piece of a response to the next.
            clock: monotonic, in seconds.
        """
        self._base_url, self._timeout, self._clock = base_url.rstrip("/"), timeout, clock
        self._session, self._last_used = requests.Session(), clock()
        # Compressed chunks would wait for one another.
        self._session.headers["Accept-Encoding"] = "identity"
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def ask(self, path: str, body: Mapping[str, Any], max_pieces: int | None = None) -> StreamRecord:
        """Sends a request and reads its stream to the end.

        Args:
            path: `COMPLETIONS` or `CHAT`.
            body: of the request; `stream` and `stream_options` are added.
            max_pieces: closes the connection after this many pieces, and the record ends `CUT`. None reads to the end.
        """
        started = self._clock()
        if started - self._last_used > _MAX_IDLE:
            self._session.close()
        reader = StreamReader(started)
        sent = dict(body) | {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        timeouts = (self._timeout, self._timeout)
        try:
            with self._session.post(self._base_url + path, json=sent, stream=True, timeout=timeouts) as response:
                failed = status_error(response.status_code)
                if failed is not None:
                    reader.fail(failed, f"HTTP {response.status_code}: {response.text[:_MOST_MESSAGE]}")
                    return reader.end(self._clock())
                # Without a size: a read of a size would wait until the buffer is full.
                for num_pieces, piece in enumerate(response.raw.stream(None, decode_content=True), 1):
                    reader.feed(piece, self._clock())
                    if num_pieces == max_pieces:
                        reader.fail(ErrorKind.CUT, "the client left")
                        break
        except (requests.exceptions.Timeout, urllib3.exceptions.ReadTimeoutError) as error:
            reader.fail(ErrorKind.TIMEOUT, str(error))
        except requests.exceptions.ConnectionError as error:
            reader.fail(ErrorKind.CONNECT, str(error))
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            reader.fail(ErrorKind.CUT, str(error))
        self._last_used = self._clock()
        return reader.end(self._last_used)

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()


def status_error(status: int) -> ErrorKind | None:
    """Kind of error of an HTTP status: None for success, malformed for neither success nor error."""
    if 200 <= status < 300:
        return None
    if 400 <= status < 500:
        return ErrorKind.HTTP_4XX
    return ErrorKind.HTTP_5XX if 500 <= status < 600 else ErrorKind.MALFORMED
