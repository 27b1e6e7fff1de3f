"""Compares outputs at temperature 0."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Below this difference of their logits the two most likely tokens are distinguished by rounding only, by dtype.
TOLERANCES = {"float32": 1e-4, "float16": 0.03, "bfloat16": 0.25}


def tolerance_of(dtype: str) -> float:
    """Tolerance of a data type such as "float32" or "torch.float32"; the widest for one that is not known."""
    return TOLERANCES.get(dtype.removeprefix("torch."), max(TOLERANCES.values()))


@dataclass(frozen=True)
class Difference:
    """The first difference of two outputs.

    Attributes:
        tokens: the two tokens there; None where an output has ended.
        logit_gap: difference of the target's two highest logits there.
        is_tie: whether the two tokens are those two, and `logit_gap` is within the tolerance.
    """

    request: int
    position: int
    tokens: tuple[int | None, int | None]
    logit_gap: float
    is_tie: bool


def first_difference(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    """The first position at which two outputs differ, or one of them has ended; None if they are the same."""
    pairs = zip([*tokens, None], [*others, None], strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def first_differences(
    outputs: Sequence[Sequence[int]],
    expected: Sequence[Sequence[int]],
    top_two: Callable[[int, int], dict[int, float]],
    tolerance: float,
) -> list[Difference]:
    """Finds the first difference of each output from the expected one; what follows it has another context.

    Args:
        top_two: from the index of a request and a position in what is expected there to logits by token id, of the
            two most likely tokens at least.
    """
    differences = []
    for request, (tokens, others) in enumerate(zip(outputs, expected, strict=True)):
        position = first_difference(tokens, others)
        if position is None:
            continue
        if position in (len(tokens), len(others)):
            pair = ([*tokens, None][position], [*others, None][position])
            differences.append(Difference(request, position, pair, float("inf"), False))
            continue
        found = tokens[position], others[position]
        (best, high), (next_best, low) = sorted(top_two(request, position).items(), key=lambda item: -item[1])[:2]
        is_tie = high - low < tolerance and set(found) == {best, next_best}
        differences.append(Difference(request, position, found, high - low, is_tie))
    return differences
