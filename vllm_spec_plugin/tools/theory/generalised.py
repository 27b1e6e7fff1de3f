"""Theorem 3.8 of Leviathan et al. (2023) with measured costs and acceptance in place of its assumptions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from vllm_spec_plugin.tools.theory.leviathan import check_rate


@dataclass(frozen=True)
class StepCosts:
    """What a step takes, all in the same unit: seconds, or target steps with one token.

    Attributes:
        verify: T(1) to T(K + 1), the target's step with so many tokens per request, for the longest K of interest.
        draft_token: each draft token.
        draft_fixed: drafting at all, however many tokens.
    """

    verify: Sequence[float]
    draft_token: float = 0.0
    draft_fixed: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError unless all costs are finite, those of the target above 0 and the others not below."""
        if not self.verify or not all(0 < cost < math.inf for cost in self.verify):
            raise ValueError(f"verify: got {list(self.verify)}; allowed: at least one, finite numbers above 0")
        for name, cost in (("draft_token", self.draft_token), ("draft_fixed", self.draft_fixed)):
            if not 0 <= cost < math.inf:
                raise ValueError(f"{name}: got {cost}; allowed: a finite number from 0 up")

    @property
    def longest(self) -> int:
        """The longest draft whose verification is known."""
        return len(self.verify) - 1

    def step(self, draft_length: int) -> float:
        """A step that drafts and verifies so many tokens.

        Raises:
            ValueError: `verify` does not go that far.
        """
        if not 0 <= draft_length <= self.longest:
            raise ValueError(f"draft length: got {draft_length}; allowed: 0 to {self.longest}, as far as verify goes")
        drafting = self.draft_fixed + draft_length * self.draft_token if draft_length else 0.0
        return self.verify[draft_length] + drafting


def conditional_rates(reached: Sequence[float]) -> list[float]:
    """From how often each position of a draft is accepted to how often it is if the one before it was.

    Args:
        reached: [K], accepted over verified tokens of each position, all drafts being equally long; not rising.

    Returns:
        [K] acceptance rates; 0 behind a position that was never accepted.

    Raises:
        ValueError: not from 0 to 1, or rising.
    """
    rates = []
    for before, share in zip([1.0, *reached], reached, strict=False):
        check_rate(share)
        if share > before:
            raise ValueError(f"positions: got {list(reached)}; allowed: none accepted more often than the one before")
        rates.append(share / before if before else 0.0)
    return rates


def expected_tokens(acceptance_rates: Sequence[float]) -> float:
    """Output tokens per step of the target, 1 + a1 + a1 a2 + ...; equation 1 where all are the same.

    Args:
        acceptance_rates: [K], of each position of the draft, given that those before it were accepted.

    Raises:
        ValueError: one is not from 0 to 1.
    """
    for rate in acceptance_rates:
        check_rate(rate)
    reached: Iterator[float] = accumulate(acceptance_rates, mul)
    return 1 + sum(reached)


def speedup(acceptance_rates: Sequence[float], costs: StepCosts) -> float:
    """Time without speculation over time with, drafting as many tokens as there are rates; theorem 3.8 if T is flat.

    Args:
        acceptance_rates: [K], of each position of the draft, given that those before it were accepted.
        costs: with `verify` for 1 to K + 1 tokens at least.

    Raises:
        ValueError: a rate is not from 0 to 1, or `verify` is too short.
    """
    return expected_tokens(acceptance_rates) * costs.step(0) / costs.step(len(acceptance_rates))


def best_draft_length(acceptance_rates: Sequence[float], costs: StepCosts) -> int:
    """The fastest K from 0 to the number of rates, the least of equals.

    A measured T may have steps in it, so a longer draft can pay where a shorter one does not: all are tried.

    Raises:
        ValueError: a rate is not from 0 to 1, or `verify` is too short.
    """
    lengths = range(len(acceptance_rates) + 1)
    return max(lengths, key=lambda length: speedup(acceptance_rates[:length], costs))
