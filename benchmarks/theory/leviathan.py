"""Section 3 of Leviathan et al. (2023), "Fast Inference from Transformers via Speculative Decoding".

It assumes what the paper assumes: each draft token is accepted with the same probability, independently of the others;
the target takes as long for K + 1 tokens as for one. `rate` is the acceptance rate a, the paper's alpha, from 0 to 1;
`length` is K, its gamma; `cost` is c, one draft step over one target step, from 0.
"""

import math
from bisect import bisect_left


def expected_tokens(rate: float, length: int) -> float:
    """Equation 1, (1 - a^(K+1)) / (1 - a): output tokens per step of the target; K + 1 at a = 1."""
    if rate in (0, 1):
        return 1.0 + rate * length
    # The same ratio, without the cancellation that takes its digits near 1.
    return math.expm1((length + 1) * math.log(rate)) / (rate - 1)


def speedup(rate: float, length: int, cost: float) -> float:
    """Theorem 3.8, (1 - a^(K+1)) / ((1 - a)(K c + 1)): time without speculation over time with."""
    return expected_tokens(rate, length) / (length * cost + 1)


def best_draft_length(rate: float, cost: float) -> int | None:
    """Section 3.5: the K from 0 up that is fastest by theorem 3.8, the least of equals.

    Equation 1 is concave in K and the cost of a step linear, so the speedup rises up to one K and falls from there. The
    k-th draft token still pays while a^k (1 + (k-1) c) > c E(k-1), E being equation 1; for the first that is a > c.

    Returns:
        None where every longer draft is faster still: c = 0 with a > 0, and a = 1 with c < 1.
    """
    if rate <= cost:
        return 0
    if cost == 0 or rate == 1:
        return None

    def is_too_long(length: int) -> bool:
        return rate**length * (1 + (length - 1) * cost) <= cost * expected_tokens(rate, length - 1)

    limit = 2
    while not is_too_long(limit):
        limit *= 2
    return bisect_left(range(1, limit), True, key=is_too_long)
