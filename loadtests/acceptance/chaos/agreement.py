"""Whether outputs at temperature 0 are those without speculation. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.tools.bench.load.agreement import ROUNDING

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What a surviving request got.

    Attributes:
        prompt: the number of its prompt.
        tokens: of its output.
        error: empty for none.
    """

    prompt: int
    tokens: Tokens
    error: str = ""


@dataclass(frozen=True)
class Expected:
    """What it gets without speculation.

    Attributes:
        prompt_tokens: of its prompt.
        tokens: of its output.
    """

    prompt_tokens: Tokens
    tokens: Tokens


@dataclass(frozen=True)
class Agreement:
    """How outputs compare.

    Attributes:
        identical: how many are the same to the last token.
        rounding: those that part at two tokens as likely as each other, up to rounding.
        wrong: those that part anywhere else, in words.
    """

    identical: int
    rounding: int
    wrong: tuple[str, ...]


def compare(
    answers: Sequence[Answer], expected: Sequence[Expected], gap: Callable[[Tokens, tuple[int, int]], float]
) -> Agreement:
    """Compares outputs, of answers without an error.

    Args:
        answers: to prompts, any number to each.
        expected: by a prompt's number.
        gap: how far apart the log-probabilities of two tokens are after a text.
    """
    identical = rounding = 0
    wrong = []
    gaps: dict[tuple[int, int, int], float] = {}
    for answer in answers:
        theirs = expected[answer.prompt]
        if answer.error:
            continue
        if answer.tokens == theirs.tokens:
            identical += 1
            continue
        same = _num_equal(answer.tokens, theirs.tokens)
        where = f"prompt {answer.prompt}, token {same + 1}"
        # One that ends early is wrong wherever it ends.
        if same == min(len(answer.tokens), len(theirs.tokens)):
            wrong.append(f"{where}: one of them ends")
            continue
        pair = (answer.tokens[same], theirs.tokens[same])
        # Until there both are the same text.
        key = (answer.prompt, same, pair[0])
        if key not in gaps:
            gaps[key] = gap(theirs.prompt_tokens + theirs.tokens[:same], pair)
        if gaps[key] <= ROUNDING:
            rounding += 1
        else:
            wrong.append(f"{where}: {pair[0]} in place of {pair[1]}, log-probabilities {gaps[key]:.4f} apart")
    return Agreement(identical, rounding, tuple(wrong))


def _num_equal(ours: Tokens, theirs: Tokens) -> int:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    return min(len(ours), len(theirs))
