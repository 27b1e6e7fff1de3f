"""Driving the engines: every candidate at every draft length, workload and concurrency."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vllm_spec_tools.bench import rounds
from vllm_spec_tools.bench.load.sweep import LATENCIES, figures
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import LoadAnswer, LoadJob, LoadRequest
from vllm_spec_tools.bench.rounds import in_turn, with_warm_ups
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.planner.candidates import NONE, Engine, MeasuredCandidate, Sample, Setting
from vllm_spec_tools.planner.traffic import batch_job, load_job, workloads_of
from vllm_spec_tools.report.measurements import PERCENTILES, Ratio, ratio

_WARM_UP_TOKENS = 16
# Requests per round that join others.
_JOINING = 8


@dataclass(frozen=True)
class MeasurementSizes:
    """Sizes of a measurement.

    Attributes:
        rounds: number of repetitions; each round has other prompts, where there are enough.
    """

    levels: tuple[int, ...]
    rounds: int
    seed: int
    one_at_a_time: bool = False


def settings(engine: Engine) -> list[Setting]:
    """Lists the settings that take turns: no speculation, and every candidate with every draft length."""
    drafting = [Setting(candidate.name, tokens) for candidate in engine.candidates for tokens in candidate.lengths]
    return [Setting(NONE, 0), *drafting]


def joining(engine: Engine) -> list[Setting]:
    """Lists the settings in which requests join others: every candidate with its longest draft."""
    longest = [Setting(candidate.name, candidate.lengths[-1]) for candidate in engine.candidates]
    return [Setting(NONE, 0), *longest]


def num_runs(engine: Engine, num_workloads: int, sizes: MeasurementSizes) -> int:
    """Counts the jobs that `measure` runs."""
    num_cells = len(sizes.levels) * num_workloads
    in_batches = rounds.num_runs(len(settings(engine)), num_cells, sizes.rounds, one_at_a_time=sizes.one_at_a_time)
    return in_batches + len(joining(engine)) * len(_several(sizes)) * sizes.rounds


def measure(
    engine: Engine,
    arm_of: Callable[[str], EngineProcess],
    prompts: Sequence[LoadRequest],
    sizes: MeasurementSizes,
    machine: NoiseGate,
    on_run: Callable[[str], None],
) -> MeasuredCandidate:
    """Warms up, and runs the rounds.

    Raises:
        UserError: an arm ended.
    """
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    workloads = workloads_of(prompts)
    named = {str(setting): setting for setting in settings(engine)}

    def drafted(setting: Setting, job: LoadJob) -> tuple[EngineProcess, LoadJob]:
        """Returns the engine that does a setting's job, and the job."""
        if setting.candidate == NONE:
            return arm_of(NONE), job
        return arm_of(engine.name), replace(job, spec_tokens=setting.tokens, spec_method=methods[setting.candidate])

    cells = [(workload, level) for level in sizes.levels for workload in workloads]
    one_at_a_time = sizes.one_at_a_time
    samples = []
    for number, (workload, level), name, is_warm_up in with_warm_ups(
        list(named), cells, sizes.rounds, one_at_a_time=one_at_a_time
    ):
        title = "warming up" if is_warm_up else f"round {number + 1}/{sizes.rounds}"
        on_run(f"{title}: {name}, {workload.name}, {level} at once")
        num_tokens = min(_WARM_UP_TOKENS, workload.num_tokens) if is_warm_up else workload.num_tokens
        arm, job = drafted(named[name], batch_job(workload, level, number, sizes.seed, num_tokens))
        answer, others = machine.run(partial(arm.load, job))
        if not is_warm_up:
            samples.append(Sample(named[name], workload.name, level, answer, others))
    first_tokens: dict[tuple[Setting, int], list[float]] = {}
    named = {str(setting): setting for setting in joining(engine)}
    for number, level, name in in_turn(list(named), _several(sizes), sizes.rounds, one_at_a_time=one_at_a_time):
        on_run(f"prompts, round {number + 1}/{sizes.rounds}: {name}, {level} streams")
        loop = load_job(prompts, level, number, sizes.seed, -(-_JOINING // level))
        arm, loop = drafted(named[name], loop)
        found, _ = machine.run(partial(arm.load, loop))
        seconds = first_tokens.setdefault((named[name], level), [])
        seconds += [taken for phase in found.phases for taken in phase.progress.ttft]
    return MeasuredCandidate(engine, tuple(samples), first_tokens)


def _several(sizes: MeasurementSizes) -> list[int]:
    """Returns the levels at which requests join others."""
    return [level for level in sizes.levels if level > 1]


RECOMMENDED = "recommended"
# Of a run, per stream.
_REQUESTS = 4


@dataclass(frozen=True)
class Verified:
    """Results at one concurrency, by arm: `NONE` and `RECOMMENDED`.

    Attributes:
        latencies: percentiles in seconds over the requests of all rounds, by arm and attribute of `Progress`.
        draft_length: verified draft tokens per request-step.
    """

    tokens_per_second: dict[str, dict[int, float]]
    latencies: dict[str, dict[str, dict[str, float | None]]]
    acceptance_length: float | None
    draft_length: float

    @property
    def speedup(self) -> Ratio:
        """Returns recommended over none, round by round."""
        found = ratio(self.tokens_per_second[RECOMMENDED], self.tokens_per_second[NONE])
        assert found is not None, "both arms did every round"
        return found


def num_verification_runs(sizes: MeasurementSizes) -> int:
    """Counts the jobs that `verify` runs."""
    return rounds.num_runs(2, len(sizes.levels), sizes.rounds, one_at_a_time=sizes.one_at_a_time)


def verify(
    arm_of: Callable[[str], EngineProcess],
    prompts: Sequence[LoadRequest],
    sizes: MeasurementSizes,
    machine: NoiseGate,
    on_run: Callable[[str], None],
) -> dict[int, Verified]:
    """Runs both arms in turns, and returns the results by concurrency.

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
    """Summarises the rounds of both arms."""
    found = {
        name: figures(LoadAnswer(0.0, [phase for answer in rounds for phase in answer.phases]))
        for name, rounds in answers.items()
    }
    return Verified(
        {
            name: {number: answer.tokens_per_second for number, answer in enumerate(rounds)}
            for name, rounds in answers.items()
        },
        {
            name: {what: {f"p{share}": own[f"{what}_p{share}"] for share in PERCENTILES} for what in LATENCIES}
            for name, own in found.items()
        },
        found[RECOMMENDED]["acceptance_length"],
        found[RECOMMENDED]["draft_length"] or 0.0,
    )
