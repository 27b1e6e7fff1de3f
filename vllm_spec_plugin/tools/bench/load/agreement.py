"""Whether arms say the same at temperature 0."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.tools.bench.load.records import LoadJob, LoadRun, Output

# Another number of tokens in a pass rounds logits differently, by about 1e-6 in float32.
ROUNDING = 1e-3

# How far apart the log-probabilities of two tokens are after a prompt and a beginning of its output.
Gap = Callable[[str, tuple[int, ...], tuple[int, ...]], float]


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


def compare(ours: Sequence[LoadRun], theirs: Sequence[LoadRun], jobs: Mapping[int, LoadJob], gap: Gap) -> Agreement:
    """Compares what both arms wrote of each request at temperature 0; a faster one got further.

    Args:
        ours: an arm's rounds with one workload and number of streams.
        theirs: the reference's.
        jobs: what both did, by round.
        gap: asked only where outputs part.
    """
    outputs = rounding = wrong = 0
    references = {run.round: run for run in theirs}
    for run in ours:
        if run.round not in references:
            continue
        for prompt, our, their in _greedy_pairs(run, references[run.round], jobs[run.round]):
            outputs += 1
            same = _num_equal(our.token_ids, their.token_ids)
            if same < min(len(our.token_ids), len(their.token_ids)):
                candidates = sorted((our.token_ids[same], their.token_ids[same]))
                if gap(prompt, tuple(our.token_ids[:same]), tuple(candidates)) <= ROUNDING:
                    rounding += 1
                else:
                    wrong += 1
            elif _ends_before(our, their) or _ends_before(their, our):
                wrong += 1
    return Agreement(outputs, rounding, wrong)


def _greedy_pairs(run: LoadRun, reference: LoadRun, job: LoadJob) -> Iterator[tuple[str, Output, Output]]:
    """Prompts of requests at temperature 0 of which both arms wrote something, with what they wrote."""
    for phase, our, their in zip(job.phases, run.answer.phases, reference.answer.phases, strict=True):
        for place, pair in enumerate(zip(our.progress.outputs, their.progress.outputs, strict=False)):
            # The list of requests begins anew at its end.
            request = phase.requests[place % len(phase.requests)]
            if request.temperature == 0 and all(output.token_ids for output in pair):
                yield request.prompt, *pair


def _num_equal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    return min(len(ours), len(theirs))


def _ends_before(one: Output, other: Output) -> bool:
    return one.has_ended and len(one.token_ids) < len(other.token_ids)
