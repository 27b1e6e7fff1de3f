"""How many tokens came at a time."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from loadtests.report.plots.canvas import LOAD
from loadtests.report.result import Result


def draw_chunks(figure: Figure, result: Result) -> None:
    """The share of chunks with each number of tokens; of a result where that is known of some."""
    chunks = result.total.chunks_by_tokens
    together = sum(chunks.values())
    axes: Axes = figure.subplots()
    axes.bar(list(chunks), [number / together for number in chunks.values()], width=0.8, color=LOAD)
    axes.set_xlabel("tokens per chunk")
    axes.set_ylabel("chunks")
    axes.set_xlim(left=0.4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.grid(visible=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
