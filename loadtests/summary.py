"""Sums the requests of a load test up in figures: distributions, rates, goodput."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loadtests.client import Measures
from vllm_spec_plugin.schema.errors import UserError

_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Slo:
    """Service level objective of a request, in seconds; None sets no limit.

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
        tpot = 0.0 if measures.tpot is None and measures.output_tokens is not None else measures.tpot
        pairs = ((self.ttft, measures.ttft), (self.tpot, tpot), (self.e2e, measures.e2e))
        kept = all(limit is None or (value is not None and value <= limit) for limit, value in pairs)
        return measures.error is None and kept


def distribution(values: Iterable[float | None]) -> dict[str, float] | None:
    """Count, mean, min, max and interpolated percentiles of the known values; None if all are None."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        return None
    shares = zip(_PERCENTILES, np.percentile(known, _PERCENTILES), strict=True)
    found = {"count": known.size, "mean": float(known.mean()), "min": float(known.min()), "max": float(known.max())}
    return found | {f"p{share}": float(value) for share, value in shares}


def summarise(measures: Iterable[Measures], slo: Slo | None = None) -> dict[str, Any]:
    """Sums requests up; times in seconds, rates over the window, from the first start to the last end.

    Failed requests count in `requests`, `errors` and the goodput's share only. None: no value, no length of the window,
    or no SLO. `gaps` and `tokens_per_chunk` are over all chunks, the other distributions over requests.
    """
    counted = list(measures)
    begin = min((one.started for one in counted), default=0.0)
    seconds = max((one.ended for one in counted), default=begin) - begin
    good = [one for one in counted if one.error is None]
    output_tokens = sum(one.output_tokens or 0 for one in good)

    def rate(amount: int) -> float | None:
        return amount / seconds if seconds else None

    goodput = None
    if slo is not None:
        met = sum(map(slo.is_met, counted))
        share = met / len(counted) if counted else None
        goodput = {"slo": asdict(slo), "good": met, "share": share, "requests_per_second": rate(met)}
    per_request = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e", "stream_tokens_per_second": "output_tokens_per_second"}
    return {
        "window_seconds": seconds,
        "requests": len(counted),
        "succeeded": len(good),
        "errors": dict(sorted(Counter(one.error.value for one in counted if one.error is not None).items())),
        "requests_per_second": rate(len(good)),
        "output_tokens": output_tokens,
        "output_tokens_per_second": rate(output_tokens),
        "prompt_tokens": sum(one.prompt_tokens or 0 for one in good),
        **{name: distribution(getattr(one, field) for one in good) for name, field in per_request.items()},
        "gaps": distribution(gap for one in good for gap in one.gaps),
        "tokens_per_chunk": distribution(size for one in good for size in one.tokens_per_chunk or ()),
        "goodput": goodput,
    }
