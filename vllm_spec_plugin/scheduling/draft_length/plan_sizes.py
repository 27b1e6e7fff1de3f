"""The best plan of every size; compiled code only."""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Columns of `draft`: what drafting costs in a step at all, per place of the longest draft, and per token.
ANY, PLACE, TOKEN = range(3)


@compiled
def best_by_size(
    order: Ints, gains: Floats, delivered: Floats, entry: Floats, step: Floats, draft: Floats
) -> tuple[Floats, Floats, Floats, Ints]:
    """Goes through the candidates once for each bound on the draft lengths.

    Draft tokens that are made one after the other cost by the longest draft: a bound keeps a single request of
    which much is expected from making it longer for all.

    Args:
        order: [m], candidates by falling gain; k * n + r is the (k+1)-th draft token of request r.
        gains: [n, K], expected accepted tokens of each.
        delivered: [n, K], the probability that it is there.
        entry: [n], seconds that the first one of a request takes besides.
        step: [m + 2], seconds of the target for 0 draft tokens and more.
        draft: [3], seconds.

    Returns:
        [m + 1] expected output tokens, draft tokens that are verified, and seconds of the plan of each size with the
        most tokens per second, and the bound on its draft lengths.
    """
    num_requests, most = gains.shape
    size_limit = order.shape[0] + 1
    tokens, rows, seconds = np.zeros(size_limit), np.zeros(size_limit), np.zeros(size_limit)
    bounds = np.zeros(size_limit, np.int64)
    tokens[0], seconds[0] = num_requests, step[0]
    for bound in range(1, most + 1):
        size, longest = 0, 0
        expected, verified, drafting = float(num_requests), 0.0, draft[ANY]
        for candidate in order:
            place, request = candidate // num_requests, candidate % num_requests
            if place >= bound:
                continue
            size += 1
            expected += gains[request, place]
            verified += delivered[request, place]
            drafting += draft[TOKEN] * delivered[request, place]
            if place == 0:
                drafting += entry[request]
            if place >= longest:
                longest = place + 1
                drafting += draft[PLACE]
            whole = int(verified)
            takes = step[whole] + (verified - whole) * (step[whole + 1] - step[whole]) + drafting
            if bounds[size] == 0 or expected * seconds[size] > tokens[size] * takes:
                tokens[size], rows[size], seconds[size], bounds[size] = expected, verified, takes, bound
        # A higher bound changes nothing if no draft reached this one.
        if longest < bound:
            break
    return tokens, rows, seconds, bounds
