"""Compares the greedy outputs of arms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_tools.bench.load.records import LoadJob, LoadRun, Output
from vllm_spec_tools.certify.greedy import first_differences

# Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id.
TopTwo = Callable[[str, tuple[int, ...]], dict[int, float]]


@dataclass(frozen=True)
class Agreement:
    """Number of outputs compared, of those that part where two tokens tie, and of those that part elsewhere."""

    outputs: int
    rounding: int
    wrong: int


def compare(
    ours: Sequence[LoadRun],
    theirs: Sequence[LoadRun],
    jobs: Mapping[int, LoadJob],
    top_two: TopTwo,
    tolerance: float,
) -> Agreement:
    """Compares what both arms wrote of each request at temperature 0; a faster one got further.

    Args:
        theirs: the reference's outputs, token ids per request.
        jobs: what both did, by round.
        top_two: called only where outputs differ.
        tolerance: of ties, see `certify.greedy.TOLERANCES`.
    """
    references = {run.round: run for run in theirs}
    pairs = [
        (prompt, *_shared(our, their))
        for run in ours
        if run.round in references
        for prompt, our, their in _greedy_pairs(run, references[run.round], jobs[run.round])
    ]
    found = first_differences(
        [tokens for _, tokens, _ in pairs],
        [tokens for _, _, tokens in pairs],
        lambda i, position: top_two(pairs[i][0], tuple(pairs[i][2][:position])),
        tolerance,
    )
    rounding = sum(one.is_tie for one in found)
    return Agreement(len(pairs), rounding, len(found) - rounding)


def _greedy_pairs(run: LoadRun, reference: LoadRun, job: LoadJob) -> Iterator[tuple[str, Output, Output]]:
    """Prompts of requests at temperature 0 of which both arms wrote something, with what they wrote."""
    for phase, our, their in zip(job.phases, run.answer.phases, reference.answer.phases, strict=True):
        for number, pair in enumerate(zip(our.progress.outputs, their.progress.outputs, strict=False)):
            # The list of requests begins anew at its end.
            request = phase.requests[number % len(phase.requests)]
            if request.temperature == 0 and all(output.token_ids for output in pair):
                yield request.prompt, *pair


def _shared(one: Output, other: Output) -> tuple[list[int], list[int]]:
    """Returns the common part of two outputs; the end of the shorter one counts if it has ended."""
    short, long = sorted((one, other), key=lambda output: len(output.token_ids))
    length = len(short.token_ids) + (short.has_ended and len(long.token_ids) > len(short.token_ids))
    return one.token_ids[:length], other.token_ids[:length]
