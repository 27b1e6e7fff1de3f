"""Sections 3.1 to 3.5 of Leviathan et al. (2023), "Fast Inference from Transformers via Speculative Decoding".

All of it assumes what the paper assumes: each draft token is accepted with the same probability, independently of
the others; the target takes as long for K + 1 tokens as for one; texts are long. In formulas `a` is the acceptance
rate, the paper's alpha, and K the draft length, its gamma.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence


def expected_tokens(acceptance_rate: float, draft_length: int) -> float:
    """Equation 1, (1 - a^(K+1)) / (1 - a): output tokens per step of the target; K + 1 at a = 1.

    Args:
        acceptance_rate: a, from 0 to 1.
        draft_length: K, from 0.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_rate(acceptance_rate)
    _check_length(draft_length)
    if acceptance_rate in (0, 1):
        return 1.0 + acceptance_rate * draft_length
    # The same ratio, without the cancellation that takes its digits near 1.
    return math.expm1((draft_length + 1) * math.log(acceptance_rate)) / (acceptance_rate - 1)


def speedup(acceptance_rate: float, draft_length: int, cost_ratio: float) -> float:
    """Theorem 3.8, (1 - a^(K+1)) / ((1 - a)(K c + 1)): time without speculation over time with.

    Args:
        acceptance_rate: a, from 0 to 1.
        draft_length: K, from 0.
        cost_ratio: c, one draft step over one target step, from 0.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_cost(cost_ratio)
    return expected_tokens(acceptance_rate, draft_length) / (draft_length * cost_ratio + 1)


def operations_factor(acceptance_rate: float, draft_length: int, operations_ratio: float) -> float:
    """Theorem 3.11, (1 - a)(K c_hat + K + 1) / (1 - a^(K+1)): arithmetic operations with speculation over without.

    Args:
        acceptance_rate: a, from 0 to 1.
        draft_length: K, from 0.
        operations_ratio: c_hat, the draft's operations per token over the target's, from 0.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_cost(operations_ratio)
    return (draft_length * operations_ratio + draft_length + 1) / expected_tokens(acceptance_rate, draft_length)


def guaranteed_speedup(acceptance_rate: float, cost_ratio: float) -> float:
    """Corollary 3.9: what the best K gains at least, (1 + a) / (1 + c) if a > c; else 1, by drafting nothing.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_cost(cost_ratio)
    return max(1.0, expected_tokens(acceptance_rate, 1) / (1 + cost_ratio))


def best_draft_length(acceptance_rate: float, cost_ratio: float) -> int | None:
    """Section 3.5: the K from 0 up that is fastest by theorem 3.8, the least of equals.

    Equation 1 is concave in K and the cost of a step linear, so the speedup rises up to one K and falls from there. The
    k-th draft token still pays while a^k (1 + (k-1) c) > c E(k-1), E being equation 1; for the first that is a > c.

    Returns:
        None where every longer draft is faster still: c = 0 with a > 0, and a = 1 with c < 1.

    Raises:
        ValueError: one of them is not in its range.
    """
    check_rate(acceptance_rate)
    check_cost(cost_ratio)
    if acceptance_rate <= cost_ratio:
        return 0
    if cost_ratio == 0 or acceptance_rate == 1:
        return None

    def is_too_long(length: int) -> bool:
        gained = acceptance_rate**length * (1 + (length - 1) * cost_ratio)
        return gained <= cost_ratio * expected_tokens(acceptance_rate, length - 1)

    limit = 2
    while not is_too_long(limit):
        limit *= 2
    return bisect_left(range(1, limit), True, key=is_too_long)


def best_draft_lengths(acceptance_rates: Sequence[float], cost_ratios: Sequence[float]) -> list[list[int | None]]:
    """Figure 3: the best K of each pair, one row per cost ratio.

    Raises:
        ValueError: one of them is not in its range.
    """
    return [[best_draft_length(rate, cost) for rate in acceptance_rates] for cost in cost_ratios]


def check_rate(acceptance_rate: float) -> None:
    """Raises ValueError unless it is an acceptance rate."""
    if not 0 <= acceptance_rate <= 1:
        raise ValueError(f"acceptance rate: got {acceptance_rate}; allowed: a number from 0 to 1")


def check_cost(ratio: float) -> None:
    """Raises ValueError unless it is a ratio of costs."""
    if not 0 <= ratio < math.inf:
        raise ValueError(f"cost ratio: got {ratio}; allowed: a finite number from 0 up")


def _check_length(draft_length: int) -> None:
    if draft_length < 0:
        raise ValueError(f"draft length: got {draft_length}; allowed: a whole number from 0 up")
