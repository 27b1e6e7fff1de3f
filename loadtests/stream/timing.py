"""How long a request's tokens took, as its client saw it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from loadtests.stream.chunks import Chunk


class ErrorKind(StrEnum):
    """Why a request failed."""

    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    # An error within the stream.
    ERROR_EVENT = "error_event"
    # The stream ended before `[DONE]`.
    CUT = "cut"
    TIMEOUT = "timeout"
    # No connection came about.
    CONNECT = "connect"
    # What came was not what an OpenAI-compatible server sends.
    MALFORMED = "malformed"


@dataclass(frozen=True)
class StreamRecord:
    """What came of a request, and when. Moments are seconds of one monotonic clock.

    Attributes:
        started: when it was sent.
        ended: when the stream was over, or had failed.
        chunks: with the moment of each, in order.
        error: None for success.
        message: about the error.
    """

    started: float
    ended: float
    chunks: Sequence[tuple[float, Chunk]] = ()
    error: ErrorKind | None = None
    message: str = ""


@dataclass(frozen=True)
class Measures:
    """Figures of one request. Times are in seconds; None is not known, or not defined for it.

    Output chunks are the chunks of text that carry tokens. A chat's opening chunk and the last usage are none. Where
    the server does not tell how many tokens a chunk has, every chunk of text counts as one that carries some.

    Attributes:
        started: moment of sending.
        ended: moment of its end.
        error: None for success; the other figures are of what came before it.
        message: about the error.
        prompt_tokens: from the usage.
        output_tokens: from the last usage, or else by counting token ids. Never by counting chunks: a step can deliver
            several tokens.
        ttft: time to first token: from sending to the first output chunk.
        e2e: from sending to the last output chunk. Neither `[DONE]` nor the usage is waited for, as in
            `vllm bench serve`.
        tpot: time per output token after the first: (e2e - ttft) / (output_tokens - 1), which is what
            `vllm bench serve` calls TPOT. 0 if all tokens came at once; None for fewer than two.
        tpot_after_first_chunk: (e2e - ttft) / (output_tokens - tokens of the first chunk). The first chunk's tokens all
            came at the first moment, none of the time after it was spent on them, so this is what a token cost. It
            equals `tpot` where the first chunk has one token, which is vLLM's rule after a prompt; it is more where
            tokens are gathered. None if it is not known what the first chunk had, or nothing came after it.
        gaps: between one output chunk and the next: what a reader waits for, however many tokens come then.
        tokens_per_chunk: of each output chunk; None if not known (only the final usage was told).
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
    tpot_after_first_chunk: float | None = None
    gaps: tuple[float, ...] = ()
    tokens_per_chunk: tuple[int, ...] | None = None
    output_tokens_per_second: float | None = None


def measure(record: StreamRecord) -> Measures:
    """The figures of a record."""
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
        tpot=_per_token(decoding, output_tokens, 1),
        tpot_after_first_chunk=_per_token(decoding, output_tokens, sizes[0]) if sizes else None,
        gaps=tuple(after - before for before, after in pairwise(moments)),
        tokens_per_chunk=sizes,
        output_tokens_per_second=output_tokens / e2e if output_tokens is not None and e2e else None,
    )


def _sizes(chunks: Sequence[Chunk]) -> tuple[int, ...] | None:
    """Tokens of each chunk, if there are chunks and all of them tell."""
    if not chunks:
        return None
    if all(chunk.token_ids is not None for chunk in chunks):
        return tuple(len(chunk.token_ids or ()) for chunk in chunks)
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None]
    if len(counts) < len(chunks):
        return None
    sizes = tuple(after - before for before, after in pairwise([0, *counts]))
    return sizes if min(sizes) >= 0 else None


def _per_token(seconds: float | None, num_tokens: int | None, num_first: int) -> float | None:
    if seconds is None or num_tokens is None or num_tokens <= num_first:
        return None
    return seconds / (num_tokens - num_first)
