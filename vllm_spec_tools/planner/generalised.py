"""Theorem 3.8 of Leviathan et al. (2023) with measured costs and acceptance in place of its assumptions.

Acceptance rates are [K], of each position of the draft, given that those before it were accepted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul


@dataclass(frozen=True)
class StepCosts:
    """Costs of a step, all in the same unit: seconds, or target steps with one token.

    Attributes:
        verify: T(1) to T(K + 1), the target's step with 1 to K + 1 tokens per request, for the longest K of interest.
        draft_token: each draft token.
    """

    verify: Sequence[float]
    draft_token: float = 0.0
    draft_fixed: float = 0.0

    @property
    def longest(self) -> int:
        """Returns the longest draft whose verification is known."""
        return len(self.verify) - 1

    def step(self, length: int) -> float:
        """Returns the time of a step that drafts and verifies a number of tokens."""
        return self.verify[length] + (self.draft_fixed + length * self.draft_token if length else 0.0)


def conditional_rates(reached: Sequence[float]) -> list[float]:
    """Converts the acceptance of each draft position to its acceptance given that the one before was accepted.

    Args:
        reached: [K], accepted over verified tokens of each position, all drafts being equally long; not rising.

    Returns:
        [K] acceptance rates; 0 behind a position that was never accepted.
    """
    return [share / before if before else 0.0 for before, share in zip([1.0, *reached], reached, strict=False)]


def expected_tokens(rates: Sequence[float]) -> float:
    """Output tokens per step of the target, 1 + a1 + a1 a2 + ...; equation 1 where all are the same."""
    reached: Iterator[float] = accumulate(rates, mul)
    return 1 + sum(reached)


def speedup(rates: Sequence[float], costs: StepCosts) -> float:
    """Time without speculation over time with, drafting as many tokens as there are rates; theorem 3.8 if T is flat."""
    return expected_tokens(rates) * costs.step(0) / costs.step(len(rates))


def best_draft_length(rates: Sequence[float], costs: StepCosts) -> int:
    """Returns the fastest K from 0 to the number of rates, the least of equals.

    A measured T may have steps in it, so a longer draft can pay where a shorter one does not: all are tried.
    """
    return max(range(len(rates) + 1), key=lambda length: speedup(rates[:length], costs))
