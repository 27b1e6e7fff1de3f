"""Charts of a load test: load, throughput and latencies over time."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from loadtests.report.result import Result
from vllm_spec_tools.report import Chart, Line

Floats = NDArray[np.float64]
_POINTS, _BINS, _VALUES_PER_BIN = 121, 60, 12
# An amount that arrives all at once is spread over this time, in seconds.
_INSTANT = 1e-6
_TIME = "time, s"
_LATENCIES = {"ttft": "time to first token", "tpot": "time per output token"}


def charts_of(result: Result) -> list[Chart]:
    """Panels of the picture; none without a request that ended."""
    return list(_charts(result)) if result.everything else []


def _charts(result: Result) -> Iterator[Chart]:
    yield Chart("load", _TIME, "requests in flight", [Line("all scenarios", _load(result), "main")], has_levels=False)
    tokens = Line("all scenarios", _throughput(result), "main")
    yield Chart("throughput", _TIME, "output tokens/s", [tokens], has_levels=False)
    for key, name in _LATENCIES.items():
        known = sorted(
            (one.started - result.started, 1000 * getattr(one, key))
            for one in result.everything
            if one.error is None and getattr(one, key) is not None
        )
        if not known:
            continue
        times, values = zip(*known, strict=True)
        middles, (p50, p95) = percentiles(times, values, result.seconds)
        limit: float | None = getattr(result.slo, key, None)
        lines = [Line("p95", dict(zip(middles.tolist(), p95.tolist(), strict=True)), "main")]
        lines.append(Line("median", dict(zip(middles.tolist(), p50.tolist(), strict=True))))
        if limit is not None:
            lines.append(Line("SLO", {0.0: 1000 * limit, result.seconds: 1000 * limit}, "reference"))
        yield Chart(name, _TIME, f"{key.upper()}, ms", lines, has_levels=False)


def _times(result: Result) -> Floats:
    """Evenly spaced times, [n], in seconds from the beginning of the test to its end."""
    return np.linspace(0.0, max(result.seconds, _INSTANT), _POINTS)


def _load(result: Result) -> dict[float, float]:
    """Requests in flight at each time."""
    times = _times(result)
    begun, ended = (np.sort([getattr(one, key) for one in result.everything]) for key in ("started", "ended"))
    begun, ended = (np.searchsorted(moments, times + result.started, side="right") for moments in (begun, ended))
    return dict(zip(times.tolist(), (begun - ended).astype(float).tolist(), strict=True))


def _throughput(result: Result) -> dict[float, float]:
    decoded = [
        (one.started - result.started + one.ttft, one.started - result.started + one.e2e, one.output_tokens)
        for one in result.everything
        if one.error is None and one.ttft is not None and one.e2e is not None and one.output_tokens is not None
    ]
    edges = _times(result)
    first, last, tokens = np.array(decoded, np.float64).reshape(-1, 3).T
    rates = spread(first, last, tokens, edges) / (edges[1] - edges[0])
    return dict(zip(((edges[1:] + edges[:-1]) / 2).tolist(), rates.tolist(), strict=True))


def spread(begins: Floats, ends: Floats, amounts: Floats, edges: Floats) -> Floats:
    """Amount in each bin, [m], if each amount, [n], is spread evenly from its begin to its end. Edges: [m + 1]."""
    # What comes all at once comes just before its end, so that the bin that ends there has it.
    first = np.minimum(begins, ends - _INSTANT)
    until = [float((amounts * np.clip((edge - first) / (ends - first), 0.0, 1.0)).sum()) for edge in edges]
    return np.diff(until)


def percentiles(times: Sequence[float], values: Sequence[float], seconds: float) -> tuple[Floats, Floats]:
    """Median and p95 of values, [n], with similar times: centres of the bins with values, [m], and figures, [2, m]."""
    num_bins = min(max(len(values) // _VALUES_PER_BIN, 1), _BINS)
    edges = np.linspace(0.0, max(seconds, _INSTANT), num_bins + 1)
    index = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, num_bins - 1)
    used = np.unique(index)
    found = [np.percentile(np.asarray(values)[index == i], (50, 95)) for i in used]
    return (edges[:-1] + edges[1:])[used] / 2, np.array(found, np.float64).reshape(used.size, 2).T
