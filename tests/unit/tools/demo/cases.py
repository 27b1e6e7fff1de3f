"""Pairs of answers made by hand."""

from collections.abc import Sequence

from vllm_spec_tools.demo.answers import Answer
from vllm_spec_tools.demo.pairs import Pair


def pairs(others: Sequence[float | None] = (0.0,) * 6, speedups: Sequence[float] = (2.0, 2.2, 2.4)) -> list[Pair]:
    """Pairs of two prompts by turns; those without speculation take 2 seconds for 40 tokens."""
    return [
        Pair(i % 2, Answer("text", 40, 2.0), Answer("text", 40, 2.0 / speedups[i % len(speedups)]), 0.1, other)
        for i, other in enumerate(others)
    ]
