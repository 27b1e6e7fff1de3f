"""Which plots a load test has something to show in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from loadtests.report.latencies import LATENCIES
from loadtests.report.numbers import number
from loadtests.report.plots.canvas import svg
from loadtests.report.plots.chunks import draw_chunks
from loadtests.report.plots.latencies import MOST_POINTS, draw_course, draw_distribution
from loadtests.report.plots.load import draw_load
from loadtests.report.result import Result

# Inches.
_WIDE, _NARROW = 9.6, (4.9, 3.0)
_LOAD, _PANEL, _LEGEND = 4.2, 2.1, 0.8
_SHARE = "The share of requests that took no longer."


@dataclass(frozen=True)
class Plot:
    """A plot in the page.

    Attributes:
        title: what it shows.
        note: how to read it.
        element: the SVG; whatever text is in it is escaped.
    """

    title: str
    note: str
    element: str


def over_time(result: Result) -> list[Plot]:
    """Plots as wide as the page, one below the other."""
    found = []
    if result.everything:
        note = (
            "Means over short spans; a request's tokens are spread evenly from its first to its last. Those of "
            "requests that failed or were given up do not count."
        )
        element = svg("load", (_WIDE, _LOAD), partial(draw_load, result=result))
        found.append(Plot("Load and throughput", note, element))
    shown = [latency for latency in LATENCIES if latency.distribution(result.total) is not None]
    if shown:
        note = f"A point is a request, at the moment when it was sent (about {MOST_POINTS:,} are drawn at most)."
        size = (_WIDE, _LEGEND + _PANEL * len(shown))
        element = svg("course", size, partial(draw_course, result=result, latencies=shown))
        found.append(Plot("Latencies", note, element))
    return found


def distributions(result: Result) -> list[Plot]:
    """Small plots, side by side where there is room."""
    draws: list[tuple[str, str, str, Callable[[Figure], None]]] = [
        (latency.key, latency.title, _SHARE, partial(draw_distribution, result=result, latency=latency))
        for latency in LATENCIES
        if latency.distribution(result.total) is not None
    ]
    sizes = result.total.tokens_per_chunk
    if sizes is not None:
        note = f"{number(sizes.mean)} on average."
        draws.append(("chunks", "Tokens per chunk", note, partial(draw_chunks, result=result)))
    return [Plot(title, note, svg(name, _NARROW, draw)) for name, title, note, draw in draws]
