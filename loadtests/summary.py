"""Sums the requests of a load test up in figures: distributions, rates, goodput."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from loadtests.client import Measures
from vllm_spec_plugin.schema.errors import UserError


@dataclass(frozen=True)
class Distribution:
    """Figures of at least one value, in the values' unit. Percentiles are interpolated, numpy's default."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def distribution(values: Iterable[float | None]) -> Distribution | None:
    """Figures of the known values; None if all are None."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        return None
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, (50, 90, 95, 99)))
    return Distribution(known.size, float(known.mean()), float(known.min()), p50, p90, p95, p99, float(known.max()))


@dataclass(frozen=True)
class Slo:
    """Service level objective of a request, in seconds; None sets no limit.

    Attributes:
        tpot: longest time per output token after the first.

    Raises:
        UserError: a limit is not positive.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None and not limit > 0:
                raise UserError(f"SLO {name} is {limit}: it must be a positive number of seconds")

    def is_met(self, measures: Measures) -> bool:
        """Whether a request succeeded within every limit.

        A response of one token has no TPOT and meets that limit, as in `vllm bench serve`. A response whose number of
        tokens is unknown does not.
        """
        if measures.error is not None:
            return False
        tpot = measures.tpot
        if tpot is None and measures.output_tokens is not None:
            tpot = 0.0
        pairs = ((self.ttft, measures.ttft), (self.tpot, tpot), (self.e2e, measures.e2e))
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


@dataclass(frozen=True)
class Goodput:
    """Requests that met an SLO: their number, share of all, failed ones included, and rate; None is undefined."""

    slo: Slo
    good: int
    share: float | None
    requests_per_second: float | None


@dataclass(frozen=True)
class Summary:
    """Figures of many requests; times in seconds, rates over the window, from the first start to the last end.

    Failed requests count in `requests` and `errors` only. None: no value, no length of the window, or no SLO. The
    distributions of `ttft`, `tpot`, `e2e` and `stream_tokens_per_second` are over requests, see `Measures`; `gaps` and
    `tokens_per_chunk` are over all chunks.
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
    e2e: Distribution | None
    stream_tokens_per_second: Distribution | None
    gaps: Distribution | None
    tokens_per_chunk: Distribution | None
    goodput: Goodput | None


def summarise(measures: Iterable[Measures], slo: Slo | None = None) -> Summary:
    """Sums requests up."""
    counted = list(measures)
    begin = min((one.started for one in counted), default=0.0)
    seconds = max((one.ended for one in counted), default=begin) - begin
    good = [one for one in counted if one.error is None]
    output_tokens = sum(one.output_tokens or 0 for one in good)

    def rate(amount: int) -> float | None:
        return amount / seconds if seconds else None

    goodput = None
    if slo is not None:
        num_met = sum(map(slo.is_met, counted))
        goodput = Goodput(slo, num_met, num_met / len(counted) if counted else None, rate(num_met))
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
        e2e=distribution(one.e2e for one in good),
        stream_tokens_per_second=distribution(one.output_tokens_per_second for one in good),
        gaps=distribution(gap for one in good for gap in one.gaps),
        tokens_per_chunk=distribution(size for one in good for size in one.tokens_per_chunk or ()),
        goodput=goodput,
    )
