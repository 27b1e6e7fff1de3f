"""Sections 3.1 to 3.5 of Leviathan et al. (2023), "Fast Inference from Transformers via Speculative Decoding".

All of it assumes what the paper assumes: each draft token is accepted with the same probability, independently of
the others; the target takes as long for K + 1 tokens as for one; texts are long. `rate` is the acceptance rate a,
the paper's alpha, from 0 to 1; `length` is K, its gamma; `cost` is c, one draft step over one target step, from 0.

The paper gives the tokens of an oracle for K, 1 / (1 - a), and says that it is "up to ~60%" faster than a fixed K;
the time is derived here. The oracle knows how many draft tokens n would be accepted in this step, P(n) = a^n (1 - a).
It drafts these and no more, and the target still verifies them: n + 1 tokens for the time of 1 + n c target steps.
With E[n] = a / (1 - a), tokens over time are

    (1 / (1 - a)) / (1 + c a / (1 - a)) = 1 / (1 - a (1 - c)).

For small c near a = 1, let r = c / (1 - a), and x = K (1 - a) for a fixed K. Then the ratio of the two speedups comes
to (1 + r x) / ((1 - e^-x)(1 + r)), at the x where it is least. As a function of r that is largest where this x is 1,
at r = 1 / (e - 2): e / (e - 1), 58% more.
"""

import math
from bisect import bisect_left

# What an oracle's gain comes near to for small c, where a is worst for a fixed K: 1 - c (e - 2).
LARGEST_GAIN = math.e / (math.e - 1)


def expected_tokens(rate: float, length: int) -> float:
    """Equation 1, (1 - a^(K+1)) / (1 - a): output tokens per step of the target; K + 1 at a = 1."""
    if rate in (0, 1):
        return 1.0 + rate * length
    # The same ratio, without the cancellation that takes its digits near 1.
    return math.expm1((length + 1) * math.log(rate)) / (rate - 1)


def speedup(rate: float, length: int, cost: float) -> float:
    """Theorem 3.8, (1 - a^(K+1)) / ((1 - a)(K c + 1)): time without speculation over time with."""
    return expected_tokens(rate, length) / (length * cost + 1)


def operations_factor(rate: float, length: int, operations_ratio: float) -> float:
    """Theorem 3.11, (1 - a)(K c_hat + K + 1) / (1 - a^(K+1)): arithmetic operations with speculation over without."""
    return (length * operations_ratio + length + 1) / expected_tokens(rate, length)


def guaranteed_speedup(rate: float, cost: float) -> float:
    """Corollary 3.9: what the best K gains at least, (1 + a) / (1 + c) if a > c; else 1, by drafting nothing."""
    return max(1.0, (1 + rate) / (1 + cost))


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


def oracle_speedup(rate: float, cost: float) -> float:
    """1 / (1 - a (1 - c)), of an oracle for K, which drafts nothing from c = 1 up; infinite at a = 1, c = 0."""
    time_per_token = 1 - rate * (1 - min(cost, 1.0))
    return math.inf if time_per_token == 0 else 1 / time_per_token


def oracle_gain(rate: float, cost: float) -> float:
    """The oracle's speedup over that of the best fixed K; 1 where longer fixed drafts come as near as one likes."""
    length = best_draft_length(rate, cost)
    return 1.0 if length is None else oracle_speedup(rate, cost) / speedup(rate, length, cost)
