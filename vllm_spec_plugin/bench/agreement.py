"""Whether arms say the same at temperature 0. Imports no vLLM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.bench.records import Run

# Another number of tokens in a pass rounds logits differently, by about 1e-6 in float32.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Agreement:
    """How an arm's greedy outputs compare with the reference's.

    Attributes:
        outputs: how many were compared.
        rounding: those that part at two tokens as likely as each other, up to rounding.
        wrong: those that part anywhere else.
    """

    outputs: int
    rounding: int
    wrong: int


def compare(
    runs: Sequence[Run], arm: str, batch: int, reference: str, gap: Callable[[list[int], list[int]], float]
) -> Agreement:
    """Compares the outputs of all rounds.

    Args:
        runs: of all arms.
        arm: whose outputs.
        batch: of which size.
        reference: the arm to compare with.
        gap: how far apart the log-probabilities of two tokens are after a text.
    """
    outputs = rounding = wrong = 0
    own = {run.round: run.answer for run in runs if (run.arm, run.batch, run.temperature) == (arm, batch, 0.0)}
    other = {run.round: run.answer for run in runs if (run.arm, run.batch, run.temperature) == (reference, batch, 0.0)}
    for number in own.keys() & other.keys():
        for prompt, ours, theirs in zip(
            own[number].prompt_token_ids, own[number].token_ids, other[number].token_ids, strict=True
        ):
            outputs += 1
            if ours == theirs:
                continue
            same = _num_equal(ours, theirs)
            # One that ends early is wrong wherever it ends.
            both_go_on = same < min(len(ours), len(theirs))
            if both_go_on and gap(prompt + ours[:same], [ours[same], theirs[same]]) <= ROUNDING:
                rounding += 1
            else:
                wrong += 1
    return Agreement(outputs, rounding, wrong)


def _num_equal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    return min(len(ours), len(theirs))
