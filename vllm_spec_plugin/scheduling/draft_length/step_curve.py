"""A curve of straight pieces between knots; compiled code only."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats


@compiled
def draw(learnt: Floats, at: Floats, curve: Floats, lowest: float) -> None:
    """The non-decreasing curve that is nowhere further than need be from what was learnt.

    Args:
        learnt: [n], value at each knot, n at least 2.
        at: [n + 1], where the knots are, rising, and where the curve ends: its last piece goes on as the one before.
        curve: [n + 1], the values there; written.
        lowest: no value is below it.
    """
    num_knots = len(learnt)
    highest = learnt[0]
    for i in range(num_knots):
        highest = max(highest, learnt[i])
        curve[i] = highest
    least = learnt[num_knots - 1]
    for i in range(num_knots - 1, -1, -1):
        least = min(least, learnt[i])
        curve[i] = max((curve[i] + least) * 0.5, lowest)
    slope = (curve[num_knots - 1] - curve[num_knots - 2]) / (at[num_knots - 1] - at[num_knots - 2])
    curve[num_knots] = curve[num_knots - 1] + slope * (at[num_knots] - at[num_knots - 1])


@compiled
def values_from(first: int, count: int, at: Floats, curve: Floats, more: float) -> Floats:
    """[count]: the curve at `first`, `first` + 1, and so on, and `more` to each.

    Args:
        first: where to begin.
        count: how many values.
        at: [n], where the knots are, rising, n at least 2.
        curve: [n], the values there; level before the first, and the last piece goes on.
        more: added to each.
    """
    values = np.empty(count)
    piece = 0
    slope = (curve[1] - curve[0]) / (at[1] - at[0])
    for i in range(count):
        while piece + 2 < len(at) and first + i >= at[piece + 1]:
            piece += 1
            slope = (curve[piece + 1] - curve[piece]) / (at[piece + 1] - at[piece])
        values[i] = curve[piece] + slope * max(first + i - at[piece], 0.0) + more
    return values
