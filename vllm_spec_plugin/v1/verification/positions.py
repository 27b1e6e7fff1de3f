"""Counts the output tokens of seeded requests."""

import weakref

import torch


class OutputPositions:
    """Counts the tokens sampled with each request's generator.

    vLLM keeps one generator per seeded request until it ends, also through preemption; the count ends with it.
    """

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[torch.Generator, int] = weakref.WeakKeyDictionary()

    def of(self, generator: torch.Generator) -> int:
        """Returns the number of tokens sampled so far."""
        return self._counts.get(generator, 0)

    def advance(self, generator: torch.Generator, num_tokens: int) -> None:
        """Adds `num_tokens`; negative for tokens that the engine discarded."""
        self._counts[generator] = self.of(generator) + num_tokens
