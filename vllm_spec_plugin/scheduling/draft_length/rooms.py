"""What each proposer may draft for each request, and what it takes to begin; compiled code only."""

import numpy as np

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Bools, Floats, Ints


@compiled
def as_places(tokens: Ints, num_places: Ints, is_tree: Bools) -> tuple[Ints, Ints, int]:
    """Limits in places, and what a place is.

    Args:
        tokens: [n, L], most tokens.
        num_places: [L], most places.
        is_tree: [L], whether a place is a whole tree.

    Returns:
        [n, L] most places, [n, L] tokens per place, and most tokens of all requests together.
    """
    limits, unit, most = tokens.copy(), np.ones_like(tokens), 0
    for request in range(len(tokens)):
        longest = 0
        for lane in range(len(num_places)):
            if is_tree[lane] and tokens[request, lane] > 0:
                limits[request, lane], unit[request, lane] = 1, tokens[request, lane]
            limits[request, lane] = min(max(limits[request, lane], 0), num_places[lane])
            longest = max(longest, limits[request, lane] * unit[request, lane])
        most += longest
    return limits, unit, most


@compiled
def catching_up(gaps: Ints, per_token: Floats, num_steps: int) -> tuple[Floats, Floats]:
    """[L, n] seconds of catching up with the requests' texts, and [L, n] of them in each of some steps.

    Args:
        gaps: [n, L], tokens of text.
        per_token: [L], seconds.
        num_steps: that it is spread over.
    """
    seconds = np.empty((len(per_token), len(gaps)))
    spread = np.empty_like(seconds)
    for lane in range(len(per_token)):
        for request in range(len(gaps)):
            seconds[lane, request] = gaps[request, lane] * per_token[lane]
            spread[lane, request] = seconds[lane, request] / num_steps
    return seconds, spread
