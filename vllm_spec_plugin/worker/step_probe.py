"""What steps of some sizes take, measured when the server starts."""

import time
from collections.abc import Callable

PROBE_SECONDS = 1.0
# What tells most comes first, as time may run out. The first step of a size may have something to set up.
_SIZES = (1, 8, 32, 4, 16, 2, 64, 128, 1, 4, 8)


def probe_steps(run: Callable[[int], None], max_tokens: int, seconds: float | None) -> list[tuple[int, float]]:
    """Runs steps until the time is up.

    Args:
        run: computes a step of that many tokens, and waits for it.
        max_tokens: most tokens of a step.
        seconds: how long to go on; None runs the first three sizes whatever they take, for ranks that must run the
            same steps.

    Returns:
        (tokens, seconds) of each step that was measured.
    """
    sizes = [size for size in _SIZES if size <= max_tokens]
    begin, measured = time.perf_counter(), list[tuple[int, float]]()
    for size in sizes if seconds is not None else sizes[:3]:
        if not measured:
            run(size)
        start = time.perf_counter()
        run(size)
        end = time.perf_counter()
        measured.append((size, end - start))
        # The next one is likely to take no longer than all so far.
        if seconds is not None and 2 * (end - begin) > seconds:
            break
    return measured
