"""Sends a request, and measures its stream: time to first token, time per output token, gaps between chunks."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import requests
import urllib3

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# Seconds after which a connection is not used again. vLLM closes one that was idle for 5 seconds, and a request that is
# sent at that moment gets no response.
_MAX_IDLE = 2.0
# Characters of an error's body, or of an invalid event, that go into its message.
_MOST_MESSAGE = 500


class ErrorKind(StrEnum):
    """Why a request failed."""

    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    # An error within the stream.
    ERROR_EVENT = "error_event"
    # The stream ended before `[DONE]`.
    CUT = "cut"
    TIMEOUT = "timeout"
    # No connection was made.
    CONNECT = "connect"
    # The response breaks OpenAI's protocol.
    MALFORMED = "malformed"


class StreamError(Exception):
    """A request failed; `kind` and str() say how."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Usage:
    """Tokens of a request so far."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class StreamChunk:
    """A chunk of a stream.

    Attributes:
        is_output: whether it belongs to the text. A chat's opening and the last usage do not.
        token_ids: tokens of this chunk; None if not reported (vLLM reports them with `return_token_ids`).
        usage: token counts up to this chunk; None if not reported.
    """

    is_output: bool
    token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class StreamRecord:
    """Chunks of one response and their arrival times, in seconds since the request was sent.

    Attributes:
        started: when the request was sent, in seconds of the wall clock, which hosts share.
        seconds: time from sending until nothing more came.
    """

    started: float
    seconds: float
    chunks: Sequence[tuple[float, StreamChunk]] = ()
    error: ErrorKind | None = None
    message: str = ""


def read_event(data: str) -> StreamChunk:
    """Reads an event of `/v1/completions` or `/v1/chat/completions`, with one choice (n = 1).

    Raises:
        StreamError: the event is not a chunk.
    """
    try:
        event = json.loads(data)
        if event.get("error") is not None:
            error = event["error"]
            message = error.get("message", error) if isinstance(error, dict) else error
            raise StreamError(ErrorKind.ERROR_EVENT, str(message))
        counts = event.get("usage")
        usage = None if counts is None else Usage(int(counts["prompt_tokens"]), int(counts["completion_tokens"]))
        if not event["choices"]:
            return StreamChunk(is_output=False, usage=usage)
        [choice] = event["choices"]
        token_ids = choice.get("token_ids")
        delta = dict(choice.get("delta") or {})
        # A chat's first chunk only names the role.
        has_role = delta.pop("role", None) is not None
        has_content = any(delta.values()) or token_ids or choice.get("finish_reason") is not None
        return StreamChunk(bool(has_content) or not has_role, None if token_ids is None else tuple(token_ids), usage)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise StreamError(ErrorKind.MALFORMED, f"no chunk ({error}): {data}"[:_MOST_MESSAGE]) from None


class StreamingClient:
    """One user of an OpenAI-compatible server; the connection is kept between requests without a long pause."""

    def __init__(self, base_url: str, api_key: str = "", timeout: float = 120.0) -> None:
        """Connects with the first request.

        Args:
            base_url: scheme, host and port, without "/v1".
            api_key: empty for none.
            timeout: most seconds to wait for a connection, and from one piece of a response to the next.
        """
        self._base_url, self._timeout = base_url.rstrip("/"), timeout
        self._session, self._last_used = requests.Session(), time.perf_counter()
        # Compressed chunks would wait for one another.
        self._session.headers["Accept-Encoding"] = "identity"
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def ask(self, path: str, body: Mapping[str, Any], max_chunks: int | None = None) -> StreamRecord:
        """Sends a request and reads its stream to the end.

        Args:
            path: `COMPLETIONS` or `CHAT`.
            body: of the request; `stream` and `stream_options` are added.
            max_chunks: closes the connection after this many chunks, and the record ends `CUT`. None reads to the end.
        """
        started, begin = time.time(), time.perf_counter()
        if begin - self._last_used > _MAX_IDLE:
            self._session.close()
        sent = dict(body) | {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        chunks: list[tuple[float, StreamChunk]] = []
        failure: tuple[ErrorKind | None, str] = (ErrorKind.CUT, "the stream ended before [DONE]")
        try:
            with self._session.post(self._base_url + path, json=sent, stream=True, timeout=self._timeout) as response:
                if (failed := status_error(response.status_code)) is not None:
                    raise StreamError(failed, f"HTTP {response.status_code}: {response.text[:_MOST_MESSAGE]}")
                # Without a size: a read of a size would wait until the buffer is full.
                for line in response.iter_lines(chunk_size=None):  # type: ignore[call-overload]
                    # Read to the end, also after [DONE]: else the connection could not be used again.
                    if failure[0] is None or not line.startswith(b"data:"):
                        continue
                    data = line.removeprefix(b"data:").decode(errors="replace").strip()
                    if data == "[DONE]":
                        failure = (None, "")
                        continue
                    chunks.append((time.perf_counter() - begin, read_event(data)))
                    if len(chunks) == max_chunks:
                        raise StreamError(ErrorKind.CUT, "the client left")
        except StreamError as error:
            failure = (error.kind, str(error))
        except requests.exceptions.RequestException as error:
            failure = (_kind_of(error), str(error))
        self._last_used = time.perf_counter()
        return StreamRecord(started, self._last_used - begin, tuple(chunks), *failure)

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()


def _kind_of(error: requests.exceptions.RequestException) -> ErrorKind:
    # `requests` gives a silent stream and a refused connection the same type.
    is_silent = any(isinstance(one, urllib3.exceptions.ReadTimeoutError) for one in error.args)
    if is_silent or isinstance(error, requests.exceptions.Timeout):
        return ErrorKind.TIMEOUT
    return ErrorKind.CONNECT if isinstance(error, requests.exceptions.ConnectionError) else ErrorKind.CUT


def status_error(status: int) -> ErrorKind | None:
    """Kind of error of an HTTP status: None for success, malformed for neither success nor error."""
    if 200 <= status < 300:
        return None
    if 400 <= status < 500:
        return ErrorKind.HTTP_4XX
    return ErrorKind.HTTP_5XX if 500 <= status < 600 else ErrorKind.MALFORMED


@dataclass(frozen=True)
class Measures:
    """Figures of one request, times in seconds. None: unknown, or undefined for this request.

    If the server does not report tokens per chunk, every chunk of text counts as one with tokens.

    Attributes:
        started: when it was sent, and `ended`, when nothing more came, by the wall clock.
        error: None for success; after an error the figures cover what came before it.
        output_tokens: from the last usage, otherwise the number of token ids. Never the number of chunks: one step can
            deliver several tokens.
        ttft: time to first token, from sending to the first chunk with tokens.
        e2e: end-to-end time, from sending to the last chunk with tokens, as in `vllm bench serve`: without `[DONE]`.
        tpot: time per output token after the first, (e2e - ttft) / (output_tokens - 1), as in `vllm bench serve`.
            0 if all tokens came at once; None for fewer than two.
        gaps: times between consecutive chunks with tokens.
        tokens_per_chunk: tokens of each of these; None if unknown (the server reports the final usage only).
        output_tokens_per_second: output_tokens / e2e.
    """

    started: float
    ended: float
    error: ErrorKind | None = None
    message: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft: float | None = None
    e2e: float | None = None
    tpot: float | None = None
    gaps: tuple[float, ...] = ()
    tokens_per_chunk: tuple[int, ...] | None = None
    output_tokens_per_second: float | None = None


def measure(record: StreamRecord) -> Measures:
    """Measures a recorded response."""
    written = [(moment, chunk) for moment, chunk in record.chunks if chunk.is_output]
    sizes = _sizes([chunk for _, chunk in written])
    moments = [moment for moment, _ in written]
    if sizes is not None:
        moments = [moment for moment, size in zip(moments, sizes, strict=True) if size]
        sizes = tuple(size for size in sizes if size)
    usages = [chunk.usage for _, chunk in record.chunks if chunk.usage is not None]
    output_tokens = usages[-1].completion_tokens if usages else sum(sizes) if sizes is not None else None
    ttft, e2e = (moments[0], moments[-1]) if moments else (None, None)
    tpot = None
    if ttft is not None and e2e is not None and output_tokens is not None and output_tokens > 1:
        tpot = (e2e - ttft) / (output_tokens - 1)
    return Measures(
        started=record.started,
        ended=record.started + record.seconds,
        error=record.error,
        message=record.message,
        prompt_tokens=usages[-1].prompt_tokens if usages else None,
        output_tokens=output_tokens,
        ttft=ttft,
        e2e=e2e,
        tpot=tpot,
        gaps=tuple(after - before for before, after in pairwise(moments)),
        tokens_per_chunk=sizes,
        output_tokens_per_second=output_tokens / e2e if output_tokens is not None and e2e else None,
    )


def _sizes(chunks: Sequence[StreamChunk]) -> tuple[int, ...] | None:
    """Tokens of each chunk; None without chunks, or if one does not report them."""
    if not chunks:
        return None
    if all(chunk.token_ids is not None for chunk in chunks):
        return tuple(len(chunk.token_ids or ()) for chunk in chunks)
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None]
    if len(counts) < len(chunks):
        return None
    sizes = tuple(after - before for before, after in pairwise([0, *counts]))
    return sizes if min(sizes) >= 0 else None
