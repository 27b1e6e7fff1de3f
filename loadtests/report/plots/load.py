"""What was asked of the server at each time, and what came."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from loadtests.report.over_time import Floats, edges_of, mean_number, spread
from loadtests.report.plots.canvas import INK, LOAD, TOKENS
from loadtests.report.result import Result

_BINS = 120


def draw_load(figure: Figure, result: Result) -> None:
    """Users and requests in flight above, output tokens per second below.

    A request's tokens are spread evenly from its first to its last; those of failed requests do not count.
    """
    edges = edges_of(result.seconds, _BINS)

    def number(changes: Sequence[tuple[float, int]]) -> Floats:
        return mean_number([(moment - result.started, held) for moment, held in changes], edges)

    above, below = figure.subplots(2, 1, sharex=True)
    label = "requests in flight"
    above.stairs(number(result.in_flight), edges, fill=True, color=LOAD, alpha=0.45, label=label)
    above.stairs(number(result.users), edges, baseline=None, color=INK, linewidth=1.4, label="users")
    above.set_ylabel("users, requests")
    above.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.legend(loc="outside upper left", ncols=2)

    told = [
        (one.started - result.started + one.ttft, one.started - result.started + one.e2e, one.output_tokens)
        for one in result.everything
        if one.error is None and one.ttft is not None and one.e2e is not None and one.output_tokens is not None
    ]
    first, last, tokens = np.array(told, np.float64).reshape(-1, 3).T
    below.stairs(spread(first, last, tokens, edges) / (edges[1] - edges[0]), edges, fill=True, color=TOKENS, alpha=0.6)
    below.set_ylabel("output tokens/s")
    below.set_xlabel("time, s")
    below.set_xlim(0, edges[-1])
    for axes in (above, below):
        axes.set_ylim(bottom=0)
    figure.align_ylabels((above, below))
