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
_GREY = "#555555"
_RATES = [number / 400 for number in range(401)]
_HIGHEST_BEST = 30  # best draft lengths grow without end towards alpha = 1


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

    Args:
        picture: what.
        path: of the PNG.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("Speculative decoding, by the formulas of Leviathan et al. (2023)", fontsize=12, fontweight="bold")
    (best, tokens), (speed, operations) = figure.subplots(2, 2)
    _draw_best(best, picture.cost_ratios)
    _draw_tokens(tokens, picture)
    _draw_speed(speed, picture)
    _draw_operations(operations, picture)
    for axes in (best, tokens, speed, operations):
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, format="png")


def _draw_best(axes: "Axes", cost_ratios: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("Best draft length (Figure 3)", fontsize=11)
    for number, cost in enumerate(cost_ratios):
        if cost == 0:
            axes.plot([], [], linestyle="none", label="c = 0: the longer, the faster")
            continue
        lengths = {rate: best_draft_length(rate, cost) for rate in _RATES}
        shown = [(rate, length) for rate, length in lengths.items() if length is not None and length <= _HIGHEST_BEST]
        _plot(axes, number, shown, f"c = {cost:g}", steps=True)
    axes.set_ylabel("K, draft tokens per step")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(-0.5, _HIGHEST_BEST + 0.5)
    _finish_rates(axes, "upper left")


def _draw_tokens(axes: "Axes", picture: Picture) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title("Expected tokens (equation 1)", fontsize=11)
    longest = max(1, *picture.draft_lengths)
    rates = sorted(picture.acceptance_rates, reverse=True)
    for number, rate in enumerate(rates):
        points = [(length, expected_tokens(rate, length)) for length in range(longest + 1)]
        _plot(axes, number, points, rf"$\alpha$ = {rate:g}")
    axes.set_xlabel("K, draft tokens per step")
    axes.set_ylabel("output tokens per target step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, longest)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _draw_speed(axes: "Axes", picture: Picture) -> None:
    # With c = 0 speedups and expected tokens are the same.
    source = "theorem 3.8" if picture.cost_ratio else "theorem 3.8, Figures 2 and 4"
    axes.set_title(f"Speedup for c = {picture.cost_ratio:g} ({source})", fontsize=11)
    _draw_lengths(axes, picture, lambda rate, length: speedup(rate, length, picture.cost_ratio))
    axes.set_ylabel("time without / time with speculation")
    _finish_rates(axes, "upper left")


def _draw_operations(axes: "Axes", picture: Picture) -> None:
    source = "theorem 3.11" if picture.operations_ratio else "theorem 3.11, Figure 4"
    axes.set_title(rf"Operations for $\hat{{c}}$ = {picture.operations_ratio:g} ({source})", fontsize=11)
    _draw_lengths(axes, picture, lambda rate, length: operations_factor(rate, length, picture.operations_ratio))
    axes.set_ylabel("operations with / without speculation")
    _finish_rates(axes, "upper right")


def _draw_lengths(axes: "Axes", picture: Picture, value: Callable[[float, int], float]) -> None:
    axes.axhline(1, color=_GREY, linewidth=1, label="without speculation")
    for number, length in enumerate(sorted(picture.draft_lengths, reverse=True)):
        _plot(axes, number, [(rate, value(rate, length)) for rate in _RATES], f"K = {length}")
    axes.set_ylim(bottom=0)


def _plot(axes: "Axes", number: int, points: Sequence[tuple[float, float]], label: str, *, steps: bool = False) -> None:
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=_COLOURS[number % MOST_CURVES],
        linestyle=_STROKES[number % MOST_CURVES],
        linewidth=1.8,
        drawstyle="steps-post" if steps else "default",
        label=label,
    )


def _finish_rates(axes: "Axes", legend: Literal["upper left", "upper right"]) -> None:
    axes.set_xlabel(r"$\alpha$, acceptance rate")
    axes.set_xlim(0, 1)
    axes.legend(frameon=False, fontsize=9, loc=legend)
