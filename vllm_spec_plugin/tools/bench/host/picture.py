"""The parts of a step as stacked bars: a panel per target and number of requests, a bar per arm."""

import statistics
from pathlib import Path

from vllm_spec_plugin.tools.bench.host.comparison import HostResults, cell_text
from vllm_spec_plugin.tools.bench.host.parts import PARTS

# Per part shade and hatch: dark and light by turns, so that neighbours differ in greyscale as well.
_STYLES = (
    ("#08306b", ""),
    ("#fdae6b", "//"),
    ("#74c476", "--"),
    ("#deebf7", ""),
    ("#a63603", ""),
    ("#9ecae1", ".."),
    ("#9e9ac8", "||"),
    ("#fee391", "xx"),
    ("#969696", ""),
    ("#f7f7f7", "\\\\"),
    ("#ffffff", ""),
)


def draw(results: HostResults, title: str, path: Path) -> None:
    """Draws the CPU time of each part into a PNG.

    Args:
        results: of the benchmark.
        title: over all panels: what was measured, the models, the machine.
        path: of the PNG.

    Raises:
        OSError: it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    targets = list(dict.fromkeys(is_computed for is_computed, _ in results.cells))
    levels = list(dict.fromkeys(num_requests for _, num_requests in results.cells))
    size = (6 + 3.2 * (len(levels) - 1), 2 + (0.6 + 0.32 * len(results.arms)) * len(targets))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11 if len(levels) > 1 else 8, fontweight="bold")
    panels = figure.subplots(len(targets), len(levels), squeeze=False, sharey=True)
    for row, is_computed in enumerate(targets):
        for axes, num_requests in zip(panels[row], levels, strict=True):
            summaries = [results.summaries[arm, (is_computed, num_requests)] for arm in results.arms]
            left = [0.0] * len(summaries)
            for part, (shade, hatch) in zip(PARTS, _STYLES, strict=True):
                widths = [1e3 * statistics.median(summary.cpu_parts[part].values()) for summary in summaries]
                style = {"color": shade, "hatch": hatch, "edgecolor": "#333333", "linewidth": 0.4}
                axes.barh(results.arms, widths, left=left, label=part, **style)
                left = [start + width for start, width in zip(left, widths, strict=True)]
            axes.set_title(cell_text((is_computed, num_requests)), fontsize=8)
            axes.set_xlabel("CPU time per step, ms", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].invert_yaxis()
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(len(PARTS), 2 + 3 * len(levels)),
        frameon=False,
        fontsize=8,
    )
    figure.savefig(path, dpi=130, format="png")
