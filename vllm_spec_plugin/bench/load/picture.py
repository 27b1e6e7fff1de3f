"""The sweep as a picture: throughput over that without drafts, by streams; and over time where the text turns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.bench.load.arms import OPTIMAL
from vllm_spec_plugin.bench.load.summary import over
from vllm_spec_plugin.bench.load.sweep import SweepResults
from vllm_spec_plugin.bench.load.switching import WINDOW
from vllm_spec_plugin.bench.load.workloads import SWITCHING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the colour-blind tell apart; beyond, the strokes do, in print as well.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8a5fbf", "#7f7f00")
_STROKES: tuple[Any, ...] = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (8, 2)))
_MARKERS = "osD^vPX<"
_BLACK, _GREY = "#000000", "#555555"
_COLUMNS = 2


def draw(results: SweepResults, title: str, path: Path) -> None:
    """Draws a panel per workload, and one per number of streams for `switching`, into a PNG.

    Args:
        results: of a sweep with at least one cell.
        title: over all panels.
        path: of the PNG.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    workloads = [name for name in dict.fromkeys(name for name, _ in results.cells) if name != SWITCHING]
    num_panels = len(workloads) + len(results.switches)
    columns = min(num_panels, _COLUMNS)
    rows = -(-num_panels // columns)
    figure = Figure(figsize=(1.6 + 5.6 * columns, 0.7 + 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, workload in zip(panels, workloads, strict=False):
        _draw_load(axes, results, workload)
    for axes, streams in zip(panels[len(workloads) :], results.switches, strict=False):
        _draw_switch(axes, results, streams)
    for axes in panels:
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[num_panels:]:
        axes.set_visible(False)
    # Arms are the same in all panels.
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, format="png")


def _draw_load(axes: "Axes", results: SweepResults, workload: str) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    levels = [streams for name, streams in results.cells if name == workload]
    for name in results.arms:
        spreads = [over(results.summaries, name, results.reference, workload, streams) for streams in levels]
        found = [spread for spread in spreads if spread is not None]
        ratios = [spread.median for spread in found]
        style = _style(results, name)
        axes.plot(levels, ratios, label=name, **style)
        if name == OPTIMAL:
            low, high = [spread.low for spread in found], [spread.high for spread in found]
            axes.fill_between(levels, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.set_title(workload, fontsize=11)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(levels))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(streams) for streams in levels])
    axes.set_xlabel("concurrent streams")
    axes.set_ylabel("tokens/s over none")
    axes.set_ylim(bottom=0)


def _draw_switch(axes: "Axes", results: SweepResults, streams: int) -> None:
    switch = results.switches[streams]
    offset = 0
    for number, phase in enumerate(switch.phases):
        count = min(map(len, phase.rates.values()))
        for name in results.arms:
            middles = [offset + (window + 0.5) * WINDOW for window in range(count)]
            label = name if number == 0 else None
            axes.plot(middles, phase.rates[name][:count], label=label, **_style(results, name) | {"markersize": 3})
        axes.annotate(
            phase.kind,
            (offset + count * WINDOW / 2, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            color=_GREY,
            fontsize=9,
        )
        offset += count * WINDOW
        if number < len(switch.phases) - 1:
            axes.axvline(offset, color=_GREY, linewidth=0.8)
    axes.set_title(f"{SWITCHING}, {streams} {'stream' if streams == 1 else 'streams'}", fontsize=11)
    axes.set_xlabel("output tokens per stream")
    axes.set_ylabel("tokens/s")
    axes.set_ylim(bottom=0)


def _style(results: SweepResults, name: str) -> dict[str, Any]:
    if name == results.reference:
        return {"color": _BLACK, "linestyle": ":", "linewidth": 1.4, "marker": None}
    if name == OPTIMAL:
        return {"color": _BLACK, "linestyle": "-", "linewidth": 2.4, "marker": "o", "markersize": 5, "zorder": 3}
    place = [arm for arm in results.arms if arm not in (results.reference, OPTIMAL)].index(name)
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "linestyle": _STROKES[place % len(_STROKES)],
        "linewidth": 1.4,
        "marker": _MARKERS[place % len(_MARKERS)],
        "markersize": 4.5,
    }
