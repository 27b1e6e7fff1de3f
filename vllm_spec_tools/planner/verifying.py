"""The recommended file against no speculation, in a closed loop of the user's prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from vllm_spec_tools.bench import rounds
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.load.records import LoadAnswer, Request
from vllm_spec_tools.bench.load.sweep import LATENCIES
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.planner.measuring import Sizes
from vllm_spec_tools.planner.samples import NONE
from vllm_spec_tools.planner.traffic import load_job
from vllm_spec_tools.report.measurements import Spread, percentiles, ratio

RECOMMENDED = "recommended"
# Of a run, per stream.
_REQUESTS = 4


@dataclass(frozen=True)
class Verified:
    """What came of one concurrency, by arm: `NONE` and `RECOMMENDED`.

    Attributes:
        tokens_per_second: by round.
        latencies: percentiles in seconds over the requests of all rounds, by arm and attribute of `Progress`.
        acceptance_length: of the drafts; None without.
        draft_length: verified draft tokens per request-step.
    """

    tokens_per_second: dict[str, dict[int, float]]
    latencies: dict[str, dict[str, dict[str, float | None]]]
    acceptance_length: float | None
    draft_length: float

    @property
    def speedup(self) -> Spread:
        """Recommended over none, round by round."""
        found = ratio(self.tokens_per_second[RECOMMENDED], self.tokens_per_second[NONE])
        assert found is not None, "both arms did every round"
        return found


def num_runs(sizes: Sizes) -> int:
    """How often `verify` runs a job."""
    return rounds.num_runs(2, len(sizes.levels), sizes.rounds, one_at_a_time=sizes.one_at_a_time)


def verify(
    arm_of: Callable[[str], Arm],
    prompts: Sequence[Request],
    sizes: Sizes,
    machine: NoiseGate,
    on_run: Callable[[str], None],
) -> dict[int, Verified]:
    """Runs both arms in turns: what came of it by concurrency.

    Args:
        arm_of: returns the running engine of a name, `NONE` or `RECOMMENDED`.
        on_run: called with each run's name before it starts.

    Raises:
        UserError: an arm ended.
    """
    names, answers = [NONE, RECOMMENDED], dict[tuple[int, str], list[LoadAnswer]]()
    for number, level, name, is_warm_up in rounds.with_warm_ups(
        names, sizes.levels, sizes.rounds, one_at_a_time=sizes.one_at_a_time
    ):
        if is_warm_up:
            on_run(f"warming up: {name}, {level} streams")
            # A policy learns from it, too.
            arm_of(name).load(load_job(prompts, level, number, sizes.seed, 1))
            continue
        on_run(f"round {number + 1}/{sizes.rounds}: {name}, {level} streams")
        job = load_job(prompts, level, number, sizes.seed, _REQUESTS)
        answer, _ = machine.run(partial(arm_of(name).load, job))
        answers.setdefault((level, name), []).append(answer)
    return {level: summarise({name: answers[level, name] for name in (NONE, RECOMMENDED)}) for level in sizes.levels}


def summarise(answers: Mapping[str, Sequence[LoadAnswer]]) -> Verified:
    """What the rounds of both arms come to."""
    phases = {name: [phase for answer in found for phase in answer.phases] for name, found in answers.items()}
    progress = {name: [phase.progress for phase in found] for name, found in phases.items()}
    own = phases[RECOMMENDED]
    drafts = sum(phase.num_drafts for phase in own)
    return Verified(
        {
            name: {number: answer.tokens_per_second for number, answer in enumerate(found)}
            for name, found in answers.items()
        },
        {
            name: {what: percentiles([v for one in found for v in getattr(one, what)]) for what in LATENCIES}
            for name, found in progress.items()
        },
        1 + sum(phase.num_accepted_tokens for phase in own) / drafts if drafts else None,
        sum(phase.num_draft_tokens for phase in own) / sum(phase.progress.request_steps for phase in own),
    )
