"""What the formulas say for given acceptance rates, cost ratios and draft lengths."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_spec_plugin.tools.theory import generalised
from vllm_spec_plugin.tools.theory.leviathan import (
    best_draft_length,
    expected_tokens,
    guaranteed_speedup,
    operations_factor,
    speedup,
)
from vllm_spec_plugin.tools.theory.varying_gamma import oracle_speedup

_SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One draft length.

    Attributes:
        draft_length: K.
        expected_tokens: per step of the target, equation 1.
        speedup: theorem 3.8.
        operations: theorem 3.11.
        speedup_verified: theorem 3.8 with what verifying takes; None if that is not known.
    """

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
    acceptance_rate: float,
    cost_ratio: float,
    draft_lengths: Sequence[int],
    operations_ratio: float | None = None,
    verify: Sequence[float] | None = None,
) -> Cell:
    """Computes one cell.

    Args:
        acceptance_rate: alpha, from 0 to 1.
        cost_ratio: c, one draft step over one target step, from 0.
        draft_lengths: each K to give a row for, from 0.
        operations_ratio: c_hat; None is the same as c.
        verify: T(1) to T(K + 1), target steps with so many tokens, in any unit; None is not known.

    Raises:
        ValueError: an argument is not in its range, or `verify` is too short for a draft length.
    """
    operations_ratio = cost_ratio if operations_ratio is None else operations_ratio
    costs = None if verify is None else generalised.StepCosts(verify, draft_token=cost_ratio * verify[0])
    rows = [
        Row(
            length,
            expected_tokens(acceptance_rate, length),
            speedup(acceptance_rate, length, cost_ratio),
            operations_factor(acceptance_rate, length, operations_ratio),
            None if costs is None else generalised.speedup([acceptance_rate] * length, costs),
        )
        for length in draft_lengths
    ]
    ceiling = _finite(oracle_speedup(acceptance_rate, cost_ratio))
    length = best_draft_length(acceptance_rate, cost_ratio)
    # Where longer is always faster, a fixed K comes as near to the oracle as one likes.
    best = Best(length, ceiling if length is None else speedup(acceptance_rate, length, cost_ratio))
    return Cell(
        acceptance_rate,
        cost_ratio,
        operations_ratio,
        rows,
        best,
        guaranteed_speedup(acceptance_rate, cost_ratio),
        ceiling,
        None if costs is None else _best_verified(acceptance_rate, costs),
    )


def to_json(cells: Sequence[Cell]) -> dict[str, Any]:
    """Everything, in plain values."""
    return {"schema": _SCHEMA, "cells": [asdict(cell) for cell in cells]}


def _best_verified(acceptance_rate: float, costs: generalised.StepCosts) -> Best:
    length = generalised.best_draft_length([acceptance_rate] * costs.longest, costs)
    return Best(length, generalised.speedup([acceptance_rate] * length, costs))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
