"""Plots of a load test as SVG: load and latency over time, distributions, tokens per chunk."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from loadtests.report.numbers import number, time_text, unit_for
from loadtests.report.result import LATENCIES, Latency, Result

Floats = NDArray[np.float64]
# Sizes in inches.
_WIDE, _NARROW = 9.6, (4.9, 3.0)
_LOAD_HEIGHT, _PANEL_HEIGHT, _LEGEND_HEIGHT = 4.2, 2.1, 0.8
_MOST_POINTS = 2000
_BINS, _VALUES_PER_BIN, _CURVE_POINTS = 60, 12, 300
# An amount that arrives all at once is spread over this time, in seconds.
_INSTANT = 1e-6
# Colours and line styles of scenarios: the styles distinguish curves in greyscale.
_COLOURS = ("#2a7fc0", "#d9730d", "#1d9a6c", "#b05fc4", "#c0504d", "#7d8a2e")
_STROKES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), ":", (0, (8, 2)))
_INK, _FAILED = "#1c2024", "#d3322c"
_STYLE: dict[Any, Any] = {
    # Names of scenarios are not formulas.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "load test",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dcdfe2",
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_ID = re.compile(r'\bid="|href="#|url\(#')


@dataclass(frozen=True)
class Plot:
    """A plot in the page: what it shows, how to read it, and its SVG with all text escaped."""

    title: str
    note: str
    element: str


def over_time(result: Result) -> list[Plot]:
    """Plots over time, as wide as the page."""
    found = []
    if result.everything:
        note = "The tokens of a response are spread evenly from its first to its last. Failed requests do not count."
        element = _svg("load", (_WIDE, _LOAD_HEIGHT), partial(draw_load, result=result))
        found.append(Plot("Load and throughput", note, element))
    shown = [latency for latency in LATENCIES if latency.distribution(result.total) is not None]
    if shown:
        note = f"Each point is a request at its sending time; at most about {_MOST_POINTS:,} are drawn."
        size = (_WIDE, _LEGEND_HEIGHT + _PANEL_HEIGHT * len(shown))
        element = _svg("latencies", size, partial(draw_latencies, result=result, latencies=shown))
        found.append(Plot("Latencies", note, element))
    return found


def distributions(result: Result) -> list[Plot]:
    """Distributions, as small plots."""
    found = []
    for latency in LATENCIES:
        if latency.distribution(result.total) is not None:
            element = _svg(latency.key, _NARROW, partial(draw_distribution, result=result, latency=latency))
            found.append(Plot(latency.title, "Share of requests that took at most this long.", element))
    sizes = result.total.tokens_per_chunk
    if sizes is not None:
        note = f"Mean: {number(sizes.mean)}. More than 1 shows speculation."
        found.append(Plot("Tokens per chunk", note, _svg("chunks", _NARROW, partial(draw_chunks, result=result))))
    return found


def draw_load(figure: Figure, result: Result) -> None:
    """Draws users and requests in flight above, output tokens per second below."""
    above, below = figure.subplots(2, 1, sharex=True)
    for label, changes, style in (("requests in flight", result.in_flight, "-"), ("users", result.users, "--")):
        shown = [*changes[:: _stride(len(changes))], *changes[-1:]]
        times = [when - result.started for when, _ in shown]
        above.step(times, [held for _, held in shown], style, where="post", label=label, linewidth=1.2)
    above.set_ylabel("users, requests")
    above.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.legend(loc="outside upper left", ncols=2)
    decoded = [
        (one.started - result.started + one.ttft, one.started - result.started + one.e2e, one.output_tokens)
        for one in result.everything
        if one.error is None and one.ttft is not None and one.e2e is not None and one.output_tokens is not None
    ]
    edges = np.linspace(0.0, max(result.seconds, _INSTANT), 2 * _BINS + 1)
    first, last, tokens = np.array(decoded, np.float64).reshape(-1, 3).T
    below.stairs(spread(first, last, tokens, edges) / (edges[1] - edges[0]), edges, fill=True, color=_COLOURS[2])
    below.set_ylabel("output tokens/s")
    below.set_xlabel("time, s")
    below.set_xlim(0, edges[-1])
    for axes in (above, below):
        axes.set_ylim(bottom=0)


def draw_latencies(figure: Figure, result: Result, latencies: Sequence[Latency]) -> None:
    """Draws each request and running percentiles, one panel per latency; the last one has failed requests as well."""
    panels = figure.subplots(len(latencies), 1, sharex=True, squeeze=False).ravel()
    for axes, latency in zip(panels, latencies, strict=True):
        starts, values = latency.points(result.everything, result.started)
        unit = unit_for(values)
        stride = _stride(len(values))
        for i, (scenario, measures) in enumerate(sorted(result.measures.items())):
            x, y = (np.array(found)[::stride] for found in latency.points(measures, result.started))
            colour = _COLOURS[i % len(_COLOURS)]
            axes.plot(x, y * unit.per_second, ".", label=scenario, color=colour, alpha=0.6, markeredgewidth=0)
        middles, (p50, p95) = percentiles(starts, values, result.seconds)
        axes.plot(middles, p50 * unit.per_second, color=_INK, linewidth=1.6, label="p50")
        axes.plot(middles, p95 * unit.per_second, color=_INK, linewidth=1.3, linestyle="--", label="p95")
        limit = latency.limit(result.slo)
        if limit is not None:
            axes.axhline(limit * unit.per_second, color=_INK, linewidth=1.2, linestyle=":", label="SLO")
        axes.set_ylabel(f"{latency.short}, {unit.name}")
        axes.set_ylim(bottom=0)
    failed = [one for one in result.everything if one.error is not None]
    if failed:
        shown = failed[:: _stride(len(failed))]
        starts, spans = [one.started - result.started for one in shown], [one.ended - one.started for one in shown]
        panels[-1].plot(starts, np.array(spans) * unit.per_second, "x", color=_FAILED, markersize=4, label="failed")
    panels[-1].set_xlabel("time, s")
    panels[-1].set_xlim(0, result.seconds)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=8, markerscale=1.5)


def draw_distribution(figure: Figure, result: Result, latency: Latency) -> None:
    """Draws the cumulative distribution of a latency, by scenario."""
    axes: Axes = figure.subplots()
    found = {name: latency.points(measures, 0.0)[1] for name, measures in sorted(result.measures.items())}
    unit = unit_for(value for values in found.values() for value in values)
    for i, (scenario, values) in enumerate(found.items()):
        shares = np.linspace(0, 1, _CURVE_POINTS if values else 0)
        quantiles = np.quantile(values, shares) if values else shares
        style = {"color": _COLOURS[i % len(_COLOURS)], "linestyle": _STROKES[i % len(_STROKES)], "linewidth": 1.6}
        axes.plot(quantiles * unit.per_second, shares, label=scenario, **style)
    limit = latency.limit(result.slo)
    if limit is not None:
        axes.axvline(limit * unit.per_second, color=_INK, linewidth=1.2, linestyle=":", label=f"SLO {time_text(limit)}")
    axes.set_xlabel(f"{latency.short}, {unit.name}")
    axes.set_ylabel("requests")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower right")


def draw_chunks(figure: Figure, result: Result) -> None:
    """Draws the share of chunks by their number of tokens."""
    chunks = result.total.chunks_by_tokens
    num_chunks = sum(chunks.values())
    axes: Axes = figure.subplots()
    axes.bar(list(chunks), [count / num_chunks for count in chunks.values()], width=0.8, color=_COLOURS[0])
    axes.set_xlabel("tokens per chunk")
    axes.set_ylabel("chunks")
    axes.set_xlim(left=0.4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


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


def _stride(num_points: int) -> int:
    """Step between drawn points."""
    return max(-(-num_points // _MOST_POINTS), 1)


def _svg(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """Draws a figure as a self-contained `svg` element, with ids that begin with its name."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=_NO_METADATA)
    element = written.getvalue()
    return _ID.sub(rf"\g<0>{name}-", element[element.index("<svg") :])
