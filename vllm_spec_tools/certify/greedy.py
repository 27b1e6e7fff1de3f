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
        pairs = list(zip([*tokens, None], [*others, None], strict=False))
        position = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if position is None:
            continue
        first, second = pairs[position]
        if first is None or second is None:
            differences.append(Difference(request, position, (first, second), float("inf"), False))
            continue
        logits = top_two(request, position)
        (best, high), (next_best, low) = sorted(logits.items(), key=lambda item: -item[1])[:2]
        is_tie = high - low < tolerance and {first, second} == {best, next_best}
        differences.append(Difference(request, position, (first, second), high - low, is_tie))
    return differences
