"""The formulas as a picture, after Figures 2 to 4 of Leviathan et al. (2023)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vllm_spec_plugin.tools.theory.leviathan import best_draft_length, expected_tokens, operations_factor, speedup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which the colour-blind tell apart; the strokes do so in print as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STROKES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1)), ":")
MOST_CURVES = len(_COLOURS)
_RATES = [number / 400 for number in range(401)]
_HIGHEST_BEST = 30  # best draft lengths grow without end towards alpha = 1
_LENGTHS, _ALPHA = "K, draft tokens per step", r"$\alpha$, acceptance rate"


@dataclass(frozen=True)
class Picture:
    """What to draw; at most `MOST_CURVES` of each.

    Attributes:
        acceptance_rates: a curve of expected tokens each.
        cost_ratios: a curve of best draft lengths each; 0 has none.
        draft_lengths: a curve of speedups and one of operations each.
        cost_ratio: of the speedups.
        operations_ratio: of the operations.
    """

    acceptance_rates: Sequence[float]
    cost_ratios: Sequence[float]
    draft_lengths: Sequence[int]
    cost_ratio: float
    operations_ratio: float


def draw(picture: Picture, path: Path) -> None:
    """Draws four panels into a PNG: best K, expected tokens, speedup, operations.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("Speculative decoding, by the formulas of Leviathan et al. (2023)", fontsize=12, fontweight="bold")
    (best, tokens), (speed, operations) = figure.subplots(2, 2)
    for number, cost in enumerate(picture.cost_ratios):
        if cost == 0:
            best.plot([], [], linestyle="none", label="c = 0: the longer, the faster")
            continue
        lengths = [(rate, best_draft_length(rate, cost)) for rate in _RATES]
        shown = [(rate, length) for rate, length in lengths if length is not None and length <= _HIGHEST_BEST]
        _plot(best, number, shown, f"c = {cost:g}", drawstyle="steps-post")
    best.yaxis.set_major_locator(MaxNLocator(integer=True))
    best.set(ylim=(-0.5, _HIGHEST_BEST + 0.5), xlim=(0, 1))
    _label(best, "Best draft length (Figure 3)", _ALPHA, _LENGTHS)

    longest = max(1, *picture.draft_lengths)
    for number, rate in enumerate(sorted(picture.acceptance_rates, reverse=True)):
        points = [(length, expected_tokens(rate, length)) for length in range(longest + 1)]
        _plot(tokens, number, points, rf"$\alpha$ = {rate:g}")
    tokens.xaxis.set_major_locator(MaxNLocator(integer=True))
    tokens.set(xlim=(0, longest), ylim=(0, None))
    _label(tokens, "Expected tokens (equation 1)", _LENGTHS, "output tokens per target step")

    cost, ratio = picture.cost_ratio, picture.operations_ratio
    _plot_lengths(speed, picture, lambda rate, length: speedup(rate, length, cost))
    # With c = 0 speedups and expected tokens are the same.
    source = "theorem 3.8" if cost else "theorem 3.8, Figures 2 and 4"
    _label(speed, f"Speedup for c = {cost:g} ({source})", _ALPHA, "time without / time with speculation")
    _plot_lengths(operations, picture, lambda rate, length: operations_factor(rate, length, ratio))
    title = rf"Operations for $\hat{{c}}$ = {ratio:g} ({'theorem 3.11' if ratio else 'theorem 3.11, Figure 4'})"
    _label(operations, title, _ALPHA, "operations with / without speculation", "upper right")
    figure.savefig(path, dpi=130, format="png")


def _plot_lengths(axes: "Axes", picture: Picture, value: Callable[[float, int], float]) -> None:
    axes.axhline(1, color="#555555", linewidth=1, label="without speculation")
    for number, length in enumerate(sorted(picture.draft_lengths, reverse=True)):
        _plot(axes, number, [(rate, value(rate, length)) for rate in _RATES], f"K = {length}")
    axes.set(xlim=(0, 1), ylim=(0, None))


def _plot(axes: "Axes", number: int, points: Sequence[tuple[float, float]], label: str, **style: Any) -> None:
    look = {"color": _COLOURS[number % MOST_CURVES], "linestyle": _STROKES[number % MOST_CURVES], "linewidth": 1.8}
    axes.plot([x for x, _ in points], [y for _, y in points], label=label, **look, **style)


def _label(
    axes: "Axes", title: str, x: str, y: str, legend: Literal["upper left", "upper right"] = "upper left"
) -> None:
    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    axes.legend(frameon=False, fontsize=9, loc=legend)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
