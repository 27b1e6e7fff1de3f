"""The plan as a picture: speedup by concurrency, expected and measured, and what verification takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.tools.planner.forecast import pooled_curve
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.words import streams

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_MARKERS = "osD^vP"
_BLACK, _GREY = "#000000", "#555555"


def draw(results: Results, title: str, path: Path) -> None:
    """Draws both panels into a PNG.

    Args:
        results: of the plan.
        title: over the panels.
        path: of the PNG.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    speedup, verification = figure.subplots(1, 2)
    _draw_speedup(speedup, results)
    _draw_verification(verification, results)
    for axes in (speedup, verification):
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, format="png")


def _draw_speedup(axes: "Axes", results: Results) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    levels = results.levels
    axes.axhline(1.0, color=_GREY, linestyle=":", linewidth=1.2, label="no speculation")
    for place, forecast in enumerate(results.forecasts):
        speedups = [forecast.best[level].speedup for level in levels]
        axes.plot(levels, speedups, label=forecast.candidate.name, **_style(place))
    if results.verified:
        spreads = [found.speedup for found in results.verified.values()]
        below = [spread.median - spread.low for spread in spreads]
        above = [spread.high - spread.median for spread in spreads]
        axes.errorbar(
            list(results.verified),
            [spread.median for spread in spreads],
            yerr=[below, above],
            fmt="X",
            color=_BLACK,
            markersize=8,
            capsize=4,
            zorder=3,
            label=f"{results.choice.candidate.name}, measured",
        )
    axes.set_title("Tokens/s over no speculation, expected", fontsize=11)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(levels))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(level) for level in levels])
    axes.set_xlabel("concurrent streams")


def _draw_verification(axes: "Axes", results: Results) -> None:
    part = results.measured[0]
    counts = range(1, part.engine.tokens + 2)
    for place, level in enumerate(results.levels):
        curve = pooled_curve(part, level)
        style = _style(place) | {"marker": None}
        axes.plot(counts, [1e3 * curve.at(level * count) for count in counts], label=streams(level), **style)
        sizes, taken = [size / level for size in curve.tokens], [1e3 * seconds for seconds in curve.seconds]
        axes.scatter(sizes, taken, color=style["color"], s=14)
    axes.set_title("A step of the target by the tokens in it, measured", fontsize=11)
    axes.set_xlabel("tokens per request")
    axes.set_ylabel("ms")


def _style(place: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "markersize": 5,
        "linewidth": 1.6,
    }
