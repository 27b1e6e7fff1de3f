"""How training went, as a picture."""

from pathlib import Path

from vllm_spec_plugin.tools.training.loop import History

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a5fbf", "#c77d0a", "#4f4f4f", "#0f9aa8", "#a83279")
_TURNS = 12  # kinds of text take turns, and their losses differ: a mean is over whole turns of 1 to 4 kinds
_SMOOTHING = 0.03  # share of all steps that one point of the training curve is the mean of


def draw_curves(history: History, title: str, path: Path, unit: str = "head") -> None:
    """Draws loss and held-out accuracy of every head over the steps.

    Args:
        history: with at least one measurement.
        title: over both.
        path: of the PNG.
        unit: what drafts one token.
    """
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    num_heads = len(history.held_out_loss[0])
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    left, right = figure.subplots(1, 2)
    width = _TURNS * max(1, round(len(history.loss) * _SMOOTHING / _TURNS))
    for head in range(num_heads):
        colour = _COLOURS[head % len(_COLOURS)]
        loss = _means([losses[head] for losses in history.loss], width)
        left.plot([step for step, _ in loss], [value for _, value in loss], color=colour, alpha=0.35, linewidth=1)
        left.plot(history.steps, [losses[head] for losses in history.held_out_loss], color=colour, linewidth=1.8)
        shares = [accuracies[head] for accuracies in history.held_out_accuracy]
        label = f"{unit} {head + 1}, token t+{head + 2}: {shares[-1]:.1%}"
        right.plot(history.steps, shares, color=colour, linewidth=1.8, label=label)
    left.plot([], [], color="#555555", linewidth=1.8, label="held out")
    left.plot([], [], color="#555555", alpha=0.35, linewidth=1, label="training, smoothed")
    left.set_title(f"Cross entropy of each {unit}", fontsize=11)
    left.set_ylabel("nats per token")
    right.set_title(f"Held-out text: how often a {unit}'s best token is right", fontsize=11)
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    right.set_ylim(bottom=0)

    def finish(axes: Axes) -> None:
        axes.set_xlabel("optimiser steps")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)

    finish(left)
    finish(right)
    figure.savefig(path, dpi=130)


def _means(values: list[float], width: int) -> list[tuple[float, float]]:
    """Means of neighbours, each with the step in its middle."""
    return [
        (start + len(piece) / 2, sum(piece) / len(piece))
        for start in range(0, len(values), width)
        if (piece := values[start : start + width])
    ]
