"""Evaluates the formulas for given acceptance rates, cost ratios and draft lengths; None is without limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.theory import leviathan
from vllm_spec_tools.planner import generalised


@dataclass(frozen=True)
class Row:
    """One draft length: equation 1, theorems 3.8 and 3.11, and theorem 3.8 with what verifying takes, if known."""

    draft_length: int
    expected_tokens: float
    speedup: float
    operations: float
    speedup_verified: float | None


@dataclass(frozen=True)
class Best:
    """The best K, None where every longer one is faster still, and its speedup or the limit of ever longer ones."""

    draft_length: int | None
    speedup: float | None


@dataclass(frozen=True)
class Cell:
    """One acceptance rate alpha and cost ratio c.

    Attributes:
        rows: one for each draft length.
        best: by theorem 3.8.
        guaranteed_speedup: corollary 3.9.
        oracle_speedup: if the best K were chosen in every step, from knowledge of what will be accepted.
        best_verified: of the K whose verification is known, with what it takes; None if none is.
    """

    acceptance_rate: float
    cost_ratio: float
    operations_ratio: float
    rows: list[Row]
    best: Best
    guaranteed_speedup: float
    oracle_speedup: float | None
    best_verified: Best | None


def study(
    rate: float,
    cost: float,
    draft_lengths: Sequence[int],
    operations_ratio: float | None = None,
    verify: Sequence[float] | None = None,
) -> Cell:
    """Computes one cell.

    Args:
        rate: alpha, from 0 to 1.
        cost: c, one draft step over one target step, from 0.
        draft_lengths: each K to give a row for, from 0.
        operations_ratio: c_hat; None is the same as c.
        verify: T(1) to T(K + 1), target steps with 1 to K + 1 tokens, in any unit; None is not known.
    """
    c_hat = cost if operations_ratio is None else operations_ratio
    costs = None if verify is None else generalised.StepCosts(verify, draft_token=cost * verify[0])

    def verified(length: int) -> float | None:
        return None if costs is None else generalised.speedup([rate] * length, costs)

    tokens, speedup, operations = leviathan.expected_tokens, leviathan.speedup, leviathan.operations_factor
    rows = [
        Row(k, tokens(rate, k), speedup(rate, k, cost), operations(rate, k, c_hat), verified(k)) for k in draft_lengths
    ]
    limit = leviathan.oracle_speedup(rate, cost)
    ceiling = limit if math.isfinite(limit) else None
    k = leviathan.best_draft_length(rate, cost)
    # Where longer is always faster, a fixed K comes as near to the oracle as one likes.
    best = Best(k, ceiling if k is None else speedup(rate, k, cost))
    best_verified = None
    if costs is not None:
        longest = generalised.best_draft_length([rate] * costs.longest, costs)
        best_verified = Best(longest, verified(longest))
    bound = leviathan.guaranteed_speedup(rate, cost)
    return Cell(rate, cost, c_hat, rows, best, bound, ceiling, best_verified)
