"""How all plots look, and how a figure becomes part of a page."""

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Stand for colours that the page sets, as they differ between light and dark: no other is like them.
INK, MUTED, _GRID, _PAPER = "#101112", "#131415", "#161718", "#191a1b"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", _GRID: "var(--line)", _PAPER: "var(--paper)"}
# Neither light nor dark: seen on both. The strokes tell curves apart where colours cannot.
_COLOURS = ("#2a7fc0", "#d9730d", "#1d9a6c", "#b05fc4", "#c0504d", "#7d8a2e")
_STROKES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), ":", (0, (8, 2)))
LOAD, TOKENS, FAILED = _COLOURS[0], _COLOURS[2], "#d3322c"

_STYLE: dict[Any, Any] = {
    # Names of scenarios are not formulas.
    "text.parse_math": False,
    # Text stays text; the page chooses its family, and none is wider than this one.
    "svg.fonttype": "none",
    "svg.hashsalt": "load test",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "legend.fontsize": 9.5,
    # So that no line runs through its words.
    "legend.facecolor": _PAPER,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.9,
    "legend.labelcolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
}
_MOST_LETTERS = 24
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_ID = re.compile(r'\bid="|href="#|url\(#')


def colour(place: int) -> str:
    """That of the scenario at a place in their order."""
    return _COLOURS[place % len(_COLOURS)]


def shortened(name: str) -> str:
    """A scenario's name with room beside others."""
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"


def stroke(place: int) -> Any:
    """That of the scenario at a place in their order."""
    return _STROKES[place % len(_STROKES)]


def svg(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """A figure as an `svg` element that needs nothing else; matplotlib escapes the texts in it.

    Args:
        name: before all ids in it, so that those of one page's figures differ.
        size: width and height in inches; the page scales them.
        draw: fills the figure.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata=_NO_METADATA)
    element = written.getvalue()
    element = _ID.sub(rf"\g<0>{name}-", element[element.index("<svg") :])
    for stand_in, variable in _VARIABLES.items():
        element = element.replace(stand_in, variable)
    return element
