"""Measures one request as its client saw it: time to first token, time per output token, gaps."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from loadtests.stream.chunks import StreamChunk


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


@dataclass(frozen=True)
class StreamRecord:
    """Chunks of one response and their arrival times, seconds of one monotonic clock."""

    started: float
    ended: float
    chunks: Sequence[tuple[float, StreamChunk]] = ()
    error: ErrorKind | None = None
    message: str = ""


@dataclass(frozen=True)
class Measures:
    """Figures of one request, times in seconds. None: unknown, or undefined for this request.

    Output chunks are chunks of text with tokens: not a chat's opening chunk, not the last usage. If the server does not
    report tokens per chunk, every chunk of text counts as an output chunk.

    Attributes:
        error: None for success; after an error the figures cover what came before it.
        output_tokens: from the last usage, otherwise the number of token ids. Never the number of chunks: one step can
            deliver several tokens.
        ttft: time to first token, from sending to the first output chunk.
        e2e: end-to-end time, from sending to the last output chunk, as in `vllm bench serve`: without `[DONE]`.
        tpot: time per output token after the first, (e2e - ttft) / (output_tokens - 1), as in `vllm bench serve`.
            0 if all tokens came at once; None for fewer than two.
        gaps: times between consecutive output chunks.
        tokens_per_chunk: tokens of each output chunk; None if unknown (the server reports the final usage only).
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
    written = [(moment, chunk) for moment, chunk in record.chunks if chunk.has_choice and not chunk.is_opening]
    sizes = _sizes([chunk for _, chunk in written])
    moments = [moment for moment, _ in written]
    if sizes is not None:
        moments = [moment for moment, size in zip(moments, sizes, strict=True) if size]
        sizes = tuple(size for size in sizes if size)
    usages = [chunk.usage for _, chunk in record.chunks if chunk.usage is not None]
    output_tokens = usages[-1].completion_tokens if usages else sum(sizes) if sizes is not None else None
    ttft = moments[0] - record.started if moments else None
    e2e = moments[-1] - record.started if moments else None
    decoding = moments[-1] - moments[0] if moments else None
    return Measures(
        started=record.started,
        ended=record.ended,
        error=record.error,
        message=record.message,
        prompt_tokens=usages[-1].prompt_tokens if usages else None,
        output_tokens=output_tokens,
        ttft=ttft,
        e2e=e2e,
        tpot=None if decoding is None or output_tokens is None or output_tokens < 2 else decoding / (output_tokens - 1),
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
