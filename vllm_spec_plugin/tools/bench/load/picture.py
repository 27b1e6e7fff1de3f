"""The sweep as a picture: ratios to no drafts and times per token, by streams; over time where the text turns."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.tools.bench.arm_words import OPTIMAL
from vllm_spec_plugin.tools.bench.load.summary import over
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.switching import WINDOW
from vllm_spec_plugin.tools.bench.load.workloads import SWITCHING
from vllm_spec_plugin.tools.bench.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the colour-blind tell apart; beyond, the strokes do, in print as well.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8a5fbf", "#7f7f00")
_STROKES: tuple[Any, ...] = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (8, 2)))
_MARKERS = "osD^vPX<"
_BLACK, _GREY = "#000000", "#555555"
_COLUMNS = 2


def draw(results: SweepResults, title: str, path: Path) -> None:
    """Draws two panels per workload and one per number of streams for `switching` into a PNG.

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
    drawings = [
        *(partial(part, results=results, workload=name) for name in workloads for part in (_draw_ratios, _draw_tpot)),
        *(partial(_draw_switch, results=results, streams=streams) for streams in results.switches),
    ]
    columns = min(len(drawings), _COLUMNS)
    rows = -(-len(drawings) // columns)
    figure = Figure(figsize=(1.6 + 5.6 * columns, 0.7 + 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, draw_into in zip(panels, drawings, strict=False):
        draw_into(axes)
    for axes in panels:
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(drawings) :]:
        axes.set_visible(False)
    # Arms are the same in all panels.
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path, dpi=130, format="png")


def _draw_ratios(axes: "Axes", results: SweepResults, workload: str) -> None:
    for name in results.arms:
        spreads = {s: over(results.summaries, name, results.reference, workload, s) for s in _levels(results, workload)}
        _draw_line(axes, results, name, spreads)
    _label(axes, results, workload, "tokens/s over none")


def _draw_tpot(axes: "Axes", results: SweepResults, workload: str) -> None:
    for name in results.arms:
        spreads = {s: results.summaries[name, workload, s].spread("tpot") for s in _levels(results, workload)}
        _draw_line(axes, results, name, spreads, 1e3)
    _label(axes, results, workload, "time per output token, ms")


def _draw_line(
    axes: "Axes", results: SweepResults, name: str, spreads: Mapping[int, Spread | None], factor: float = 1.0
) -> None:
    found = {streams: spread for streams, spread in spreads.items() if spread is not None}
    style = _style(results, name)
    axes.plot(list(found), [factor * spread.median for spread in found.values()], label=name, **style)
    if name == OPTIMAL:
        low, high = ([factor * getattr(spread, end) for spread in found.values()] for end in ("low", "high"))
        axes.fill_between(list(found), low, high, color=style["color"], alpha=0.12, linewidth=0)


def _label(axes: "Axes", results: SweepResults, workload: str, figure: str) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    levels = _levels(results, workload)
    axes.set_title(workload, fontsize=11)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(levels))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(streams) for streams in levels])
    axes.set_xlabel("concurrent streams")
    axes.set_ylabel(figure)
    axes.set_ylim(bottom=0)


def _levels(results: SweepResults, workload: str) -> list[int]:
    return [streams for name, streams in results.cells if name == workload]


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
        return {"color": _BLACK, "linestyle": ":", "linewidth": 1.4, "marker": ".", "markersize": 5}
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
