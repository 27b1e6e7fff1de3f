"""Steps of every small size, once, before anybody waits for them.

On CPU oneDNN makes a kernel for each number of tokens when that first comes, which can take as long as a small model's
step. With drafts the numbers vary: without this, a server's first minutes would be slower with drafts than without, and
the policy of draft lengths would learn from it.
"""

import time
from collections.abc import Callable

# Of the target, and of a draft model.
TARGET_SECONDS, DRAFT_SECONDS = 4.0, 1.0


def make_kernels(run: Callable[[int], None], most: int, seconds: float) -> int:
    """Runs steps of 1, 2, 3, ... tokens until the time is up.

    Args:
        run: computes a step of that many tokens, and waits for it.
        most: the largest size.
        seconds: how long to go on; the step that is begun last goes beyond.

    Returns:
        The largest size that was run; 0 if none was.
    """
    begin = time.perf_counter()
    for size in range(1, most + 1):
        if time.perf_counter() - begin >= seconds:
            return size - 1
        run(size)
    return most
