"""A load test in figures that can be written as JSON."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from loadtests.stream.distribution import Distribution, distribution
from loadtests.stream.goodput import Slo
from loadtests.stream.timing import Measures


@dataclass(frozen=True)
class Goodput:
    """Requests that met an SLO.

    Attributes:
        slo: the limits.
        good: how many met it.
        share: of all requests, failed ones among them; None without any.
        requests_per_second: good ones; None in a window without length.
    """

    slo: Slo
    good: int
    share: float | None
    requests_per_second: float | None


@dataclass(frozen=True)
class Summary:
    """Figures of many requests. Times are in seconds. Those of failed requests count in nothing but their number.

    Attributes:
        window_seconds: the window's length.
        requests: that ended in the window.
        succeeded: of them.
        errors: how many failed, by kind; only the kinds that there were.
        requests_per_second: that succeeded; None in a window without length.
        output_tokens: of requests that succeeded and told.
        output_tokens_per_second: over the window, all streams together; None in a window without length.
        prompt_tokens: like `output_tokens`.
        ttft: per request, and so the next four.
        tpot: see `Measures`.
        tpot_after_first_chunk: see `Measures`.
        e2e: see `Measures`.
        stream_tokens_per_second: of a request by itself.
        gaps: of all requests together.
        tokens_per_chunk: of all requests together; None if nobody told.
        chunks_by_tokens: how many chunks had so many tokens.
        goodput: None if there is no SLO.
    """

    window_seconds: float
    requests: int
    succeeded: int
    errors: dict[str, int]
    requests_per_second: float | None
    output_tokens: int
    output_tokens_per_second: float | None
    prompt_tokens: int
    ttft: Distribution | None
    tpot: Distribution | None
    tpot_after_first_chunk: Distribution | None
    e2e: Distribution | None
    stream_tokens_per_second: Distribution | None
    gaps: Distribution | None
    tokens_per_chunk: Distribution | None
    chunks_by_tokens: dict[int, int]
    goodput: Goodput | None

    def as_json(self) -> dict[str, Any]:
        """The figures in what `json.dumps` takes; numbers of tokens that are keys become strings."""
        body = asdict(self)
        body["chunks_by_tokens"] = {str(tokens): count for tokens, count in self.chunks_by_tokens.items()}
        return body


def summarise(
    measures: Iterable[Measures], slo: Slo | None = None, window: tuple[float, float] | None = None
) -> Summary:
    """Sums requests up.

    Args:
        measures: of each request.
        slo: for the goodput.
        window: first and last moment, seconds of the measures' clock. Requests that end in it count as a whole, others
            not at all. If not given it reaches from the first request's sending to the last one's end.

    Raises:
        ValueError: the window ends before it begins.
    """
    counted = list(measures)
    if window is None:
        begin = min((one.started for one in counted), default=0.0)
        window = (begin, max((one.ended for one in counted), default=begin))
    begin, end = window
    if not begin <= end:
        raise ValueError(f"the window ends at {end}, before it begins at {begin}")
    counted = [one for one in counted if begin <= one.ended <= end]
    seconds = end - begin
    good = [one for one in counted if one.error is None]
    output_tokens = sum(one.output_tokens or 0 for one in good)
    sizes = [size for one in good for size in one.tokens_per_chunk or ()]

    def rate(amount: int) -> float | None:
        return amount / seconds if seconds else None

    return Summary(
        window_seconds=seconds,
        requests=len(counted),
        succeeded=len(good),
        errors=dict(sorted(Counter(one.error.value for one in counted if one.error is not None).items())),
        requests_per_second=rate(len(good)),
        output_tokens=output_tokens,
        output_tokens_per_second=rate(output_tokens),
        prompt_tokens=sum(one.prompt_tokens or 0 for one in good),
        ttft=distribution(one.ttft for one in good),
        tpot=distribution(one.tpot for one in good),
        tpot_after_first_chunk=distribution(one.tpot_after_first_chunk for one in good),
        e2e=distribution(one.e2e for one in good),
        stream_tokens_per_second=distribution(one.output_tokens_per_second for one in good),
        gaps=distribution(gap for one in good for gap in one.gaps),
        tokens_per_chunk=distribution(sizes),
        chunks_by_tokens=dict(sorted(Counter(sizes).items())),
        goodput=None if slo is None else _goodput(counted, slo, seconds),
    )


def _goodput(counted: list[Measures], slo: Slo, seconds: float) -> Goodput:
    good = sum(slo.is_met(one) for one in counted)
    return Goodput(slo, good, good / len(counted) if counted else None, good / seconds if seconds else None)
