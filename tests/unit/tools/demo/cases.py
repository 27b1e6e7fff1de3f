"""Pairs of answers made by hand."""

from collections.abc import Sequence

from vllm_spec_tools.demo.answers import Answer, Piece
from vllm_spec_tools.demo.pairs import Pair

WORDS = [f"word{number}\n" for number in range(40)]


def answer(seconds: float, per_piece: int = 1, words: Sequence[str] = WORDS) -> Answer:
    """An answer whose pieces of some tokens come at equal intervals, the last one at the end."""
    ends = range(per_piece, len(words) + 1, per_piece)
    pieces = [Piece(end * seconds / len(words), "".join(words[end - per_piece : end]), end) for end in ends]
    return Answer([*pieces, Piece(seconds, "", len(words))], seconds)


def pairs(others: Sequence[float | None] = (0.0,) * 6, speedups: Sequence[float] = (2.0, 2.2, 2.4)) -> list[Pair]:
    """Pairs of two prompts by turns; those without speculation take 2 seconds."""
    return [
        Pair(number % 2, answer(2.0), answer(2.0 / speedups[number % len(speedups)], 4), 0.1, other)
        for number, other in enumerate(others)
    ]
