"""How long requests took: over the time of the test, and how that is distributed."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from loadtests.report.latencies import Latency
from loadtests.report.numbers import Unit, time_text, unit_for
from loadtests.report.over_time import ecdf, percentiles
from loadtests.report.plots.canvas import FAILED, INK, MUTED, colour, shortened, stroke
from loadtests.report.result import Result

# Of all scenarios together.
MOST_POINTS = 2000
# Of the percentiles, and of a distribution's curve.
_BINS, _STEPS = 60, 300


def draw_course(figure: Figure, result: Result, latencies: Sequence[Latency]) -> None:
    """Each request at its moment of sending, with percentiles of those sent at about that time; one panel per latency.

    The last panel has failed requests as well, at the time after which they failed.
    """
    panels = figure.subplots(len(latencies), 1, sharex=True, squeeze=False).ravel()
    for axes, latency in zip(panels, latencies, strict=True):
        unit = _draw_panel(axes, result, latency)
    _draw_failed(panels[-1], result, unit)
    panels[-1].set_xlabel("time, s")
    panels[-1].set_xlim(0, result.seconds)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=8, markerscale=1.5)
    figure.align_ylabels(panels)


def draw_distribution(figure: Figure, result: Result, latency: Latency) -> None:
    """The share of requests that took no longer, by scenario."""
    axes: Axes = figure.subplots()
    found = {name: latency.points(measures, 0.0)[1] for name, measures in sorted(result.measures.items())}
    unit = unit_for(value for values in found.values() for value in values)
    for place, (scenario, values) in enumerate(found.items()):
        x, y = ecdf(values, _STEPS)
        style: dict[str, Any] = {"color": colour(place), "linestyle": stroke(place), "drawstyle": "steps-post"}
        axes.plot(_in(unit, x), y, label=shortened(scenario), linewidth=1.6, **style)
    limit = latency.limit(result.slo)
    if limit is not None:
        axes.axvline(limit * unit.per_second, color=INK, linewidth=1.2, linestyle=":", label=f"SLO {time_text(limit)}")
    axes.set_xlabel(f"{latency.short}, {unit.name}")
    axes.set_ylabel("requests")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="lower right")


def _draw_panel(axes: Axes, result: Result, latency: Latency) -> Unit:
    """One latency; returns the axis' unit."""
    moments, values = latency.points(result.everything, result.started)
    unit = unit_for(values)
    stride = _stride(len(values))
    for place, (scenario, measures) in enumerate(sorted(result.measures.items())):
        x, y = latency.points(measures, result.started)
        style: dict[str, Any] = {"color": colour(place), "alpha": 0.6, "markeredgewidth": 0, "markersize": 5}
        axes.plot(x[::stride], _in(unit, y[::stride]), ".", label=shortened(scenario), **style)
    middles, (p50, p95) = percentiles(moments, values, result.seconds, (50, 95), _BINS)
    axes.plot(middles, _in(unit, p50), color=INK, linewidth=1.6, label="p50")
    axes.plot(middles, _in(unit, p95), color=INK, linewidth=1.3, linestyle="--", label="p95")
    limit = latency.limit(result.slo)
    if limit is not None:
        axes.axhline(limit * unit.per_second, color=MUTED, linewidth=1.2, linestyle=":", label="SLO")
    axes.set_ylabel(f"{latency.short}, {unit.name}")
    axes.set_ylim(bottom=0)
    return unit


def _draw_failed(axes: Axes, result: Result, unit: Unit) -> None:
    failed = [one for one in result.everything if one.error is not None]
    if failed:
        shown = failed[:: _stride(len(failed))]
        moments = [one.started - result.started for one in shown]
        spans = _in(unit, (one.ended - one.started for one in shown))
        axes.plot(moments, spans, "x", color=FAILED, markersize=4, label="failed")


def _stride(num_points: int) -> int:
    """Every so manyth is drawn."""
    return max(-(-num_points // MOST_POINTS), 1)


def _in(unit: Unit, seconds: Iterable[float]) -> list[float]:
    return [value * unit.per_second for value in seconds]
