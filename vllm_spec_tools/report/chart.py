"""Charts that stand alone: titles, units, arms named for people, legible in greyscale."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vllm_spec_tools.report.measurements import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct to the colour-blind; strokes and markers differ too, for print in greyscale.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8a5fbf", "#7f7f00")
_STROKES: tuple[Any, ...] = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (8, 2)))
_MARKERS = "sD^vPX<>"
_BLACK = "#000000"
_MOST_MARKERS = 40  # on a line; more hide its stroke
_COLUMNS, _WIDTH, _HEIGHT, _DPI = 2, 6.0, 4.0, 130


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        points: y by x; ranges are drawn as error bars, None is left out.
        role: the reference is dotted, the main line is thick, both black.
    """

    name: str
    points: Mapping[int, Spread | None] | Mapping[float, Spread | None] | Mapping[int, float] | Mapping[float, float]
    role: Literal["reference", "main", "other"] = "other"


@dataclass(frozen=True)
class Chart:
    """Lines over levels or over time.

    Attributes:
        has_levels: whether x has few values, each with a tick on a logarithmic axis.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    has_levels: bool = True

    def draw(self, axes: "Axes", styles: Mapping[str, int]) -> None:
        """Draws into axes; `styles` is the index of the style of each line that is neither reference nor main."""
        from matplotlib.ticker import MaxNLocator

        for line in self.lines:
            style = _style(line.role, styles.get(line.name, 0))
            points = {x: _as_spread(y) for x, y in line.points.items() if y is not None}
            style["markevery"] = math.ceil(len(points) / _MOST_MARKERS) or 1
            medians = [spread.median for spread in points.values()]
            low = [max(spread.median - spread.low, 0.0) for spread in points.values()]
            high = [max(spread.high - spread.median, 0.0) for spread in points.values()]
            bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "capthick": 0.8} if any(low + high) else {}
            if bars:
                axes.errorbar(list(points), medians, [low, high], label=line.name, **bars, **style)
            else:
                axes.plot(list(points), medians, label=line.name, **style)
        values = sorted({x for line in self.lines for x in line.points})
        if self.has_levels:
            _mark_levels(axes, values)
        elif all(float(x).is_integer() for x in values):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, axes.get_ylim()[1] * 1.02)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)


def picture(charts: Sequence[Chart], title: str, subtitle: str, texts: Mapping[str, str] | None = None) -> bytes:
    """Returns what `draw` draws as a PNG, with further `texts` by keyword."""
    written = io.BytesIO()
    draw(charts, title, subtitle).savefig(written, dpi=_DPI, format="png", metadata=dict(texts or {}))
    return written.getvalue()


def draw(charts: Sequence[Chart], title: str, subtitle: str) -> "Figure":
    """Draws charts side by side.

    Args:
        charts: at least one. They share a legend, and a name has one style in all of them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(len(charts), _COLUMNS)
    rows = math.ceil(len(charts) / columns)
    lines = {line.name: line for chart in charts for line in chart.lines}
    per_row = max(1, int(_WIDTH * columns / (0.075 * max(map(len, lines)) + 0.75)))
    height = rows * _HEIGHT + 0.8 + 0.25 * math.ceil(len(lines) / per_row)
    figure = Figure(figsize=(_WIDTH * columns + 0.6, height), layout="constrained")
    FigureCanvasAgg(figure)
    heading = _plain(f"{title}\n{subtitle}")
    figure.suptitle(heading, fontsize=11 if columns > 1 else 9, fontweight="bold", wrap=True)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    styles = {name: i for i, name in enumerate(name for name, line in lines.items() if line.role == "other")}
    entries: dict[str, Any] = {}
    for axes, chart in zip(panels, charts, strict=False):
        chart.draw(axes, styles)
        axes.set_title(chart.title, fontsize=10)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True)) | entries
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    if len(entries) > 1:
        handles, shown = list(entries.values()), list(map(_plain, entries))
        style = {"ncols": per_row, "frameon": False, "fontsize": 9, "handlelength": 3.5}
        figure.legend(handles, shown, loc="outside lower center", **style)
    return figure


def _plain(text: str) -> str:
    """Escapes $, which starts mathematics."""
    return text.replace("$", r"\$")


def _as_spread(value: Spread | float) -> Spread:
    return value if isinstance(value, Spread) else Spread(value, value, value)


def _mark_levels(axes: "Axes", levels: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(levels))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{level:g}" for level in levels])
    if len(levels) == 1:
        axes.set_xlim(levels[0] / 2, levels[0] * 2)


def _style(role: str, index: int) -> dict[str, Any]:
    if role == "reference":
        return {"color": _BLACK, "linestyle": ":", "linewidth": 1.4, "marker": ".", "markersize": 6}
    if role == "main":
        return {"color": _BLACK, "linestyle": "-", "linewidth": 2.4, "marker": "o", "markersize": 5.5, "zorder": 3}
    own = {"color": _COLOURS, "linestyle": _STROKES, "marker": _MARKERS}
    return {key: values[index % len(values)] for key, values in own.items()} | {"linewidth": 1.4, "markersize": 5}
