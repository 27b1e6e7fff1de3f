"""What the formulas say for given acceptance rates, cost ratios and draft lengths."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_spec_plugin.tools.theory import generalised, leviathan


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
    """The best K.

    Attributes:
        draft_length: None where every longer one is faster still.
        speedup: with it, or what ever longer ones come near to; None is without limit.
    """

    draft_length: int | None
    speedup: float | None


@dataclass(frozen=True)
class Cell:
    """One acceptance rate and cost ratio.

    Attributes:
        acceptance_rate: alpha.
        cost_ratio: c.
        operations_ratio: c_hat.
        rows: one for each draft length.
        best: by theorem 3.8.
        guaranteed_speedup: corollary 3.9.
        oracle_speedup: if K were chosen anew in every step, knowing what will be accepted; None is without limit.
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
    operations_ratio = cost if operations_ratio is None else operations_ratio
    costs = None if verify is None else generalised.StepCosts(verify, draft_token=cost * verify[0])
    rows = [
        Row(
            length,
            leviathan.expected_tokens(rate, length),
            leviathan.speedup(rate, length, cost),
            leviathan.operations_factor(rate, length, operations_ratio),
            None if costs is None else generalised.speedup([rate] * length, costs),
        )
        for length in draft_lengths
    ]
    limit = leviathan.oracle_speedup(rate, cost)
    ceiling = limit if math.isfinite(limit) else None
    length = leviathan.best_draft_length(rate, cost)
    # Where longer is always faster, a fixed K comes as near to the oracle as one likes.
    best = Best(length, ceiling if length is None else leviathan.speedup(rate, length, cost))
    verified = None
    if costs is not None:
        longest = generalised.best_draft_length([rate] * costs.longest, costs)
        verified = Best(longest, generalised.speedup([rate] * longest, costs))
    bound = leviathan.guaranteed_speedup(rate, cost)
    return Cell(rate, cost, operations_ratio, rows, best, bound, ceiling, verified)


def to_json(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Everything, in plain values."""
    return [asdict(cell) for cell in cells]
