"""Driving the engines: every candidate at every draft length, workload and concurrency."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.load.records import Request
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.prompts import prompts_of_round
from vllm_spec_plugin.tools.bench.records import Job
from vllm_spec_plugin.tools.bench.rounds import in_turn
from vllm_spec_plugin.tools.planner.candidates import Engine
from vllm_spec_plugin.tools.planner.samples import NONE, Measured, Sample, Setting
from vllm_spec_plugin.tools.planner.traffic import Workload, load_job, workloads_of

_WARM_UP_TOKENS = 16
# Requests per round that join others.
_JOINING = 8


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        levels: requests at once.
        rounds: how often everything is done; each round has other prompts, where there are enough.
        seed: of the first round.
    """

    levels: tuple[int, ...]
    rounds: int
    seed: int


def settings(engine: Engine) -> list[Setting]:
    """What takes turns: no speculation, and every candidate with every draft length."""
    drafting = [Setting(candidate.name, tokens) for candidate in engine.candidates for tokens in candidate.lengths]
    return [Setting(NONE, 0), *drafting]


def joining(engine: Engine) -> list[Setting]:
    """Of these, what requests join others with: every candidate with its longest draft."""
    longest = [Setting(candidate.name, candidate.lengths[-1]) for candidate in engine.candidates]
    return [Setting(NONE, 0), *longest]


def num_runs(engine: Engine, num_workloads: int, sizes: Sizes) -> int:
    """How often `measure` runs a job."""
    in_batches = len(settings(engine)) * len(sizes.levels) * (1 + num_workloads * sizes.rounds)
    return in_batches + len(joining(engine)) * len(_several(sizes)) * sizes.rounds


def measure(
    engine: Engine,
    arms: Mapping[str, Arm],
    prompts: Sequence[Request],
    sizes: Sizes,
    machine: NoiseGate,
    on_run: Callable[[str], None],
) -> Measured:
    """Warms up, and runs the rounds.

    Args:
        engine: that drafts.
        arms: running: `NONE`, and the engine by its name.
        prompts: the traffic.
        sizes: how much.
        machine: chooses the moments.
        on_run: called with each run's name before it starts.

    Raises:
        UserError: an arm ended.
    """
    methods = {candidate.name: candidate.method for candidate in engine.candidates}
    workloads = workloads_of(prompts)
    named = {str(setting): setting for setting in settings(engine)}

    def run(title: str, setting: Setting, workload: Workload, level: int, number: int, *, is_warm_up: bool) -> Sample:
        on_run(f"{title}: {setting}, {workload.name}, {level} at once")
        texts = prompts_of_round(workload.texts, level, number)
        predictions = prompts_of_round(workload.predictions, level, number) if workload.predictions else ()
        seed = sizes.seed + number
        job = Job(texts, workload.temperature, workload.num_tokens, seed, predictions=predictions)
        if is_warm_up:
            job = replace(job, num_tokens=min(_WARM_UP_TOKENS, job.num_tokens))
        if setting.candidate == NONE:
            arm = arms[NONE]
        else:
            arm = arms[engine.name]
            job = replace(job, spec_tokens=setting.tokens, spec_method=methods[setting.candidate])
        answer, others = machine.run(lambda: arm.run(job))
        return Sample(setting, workload.name, level, answer, others)

    for _, level, name in in_turn(list(named), sizes.levels, 1):
        run("warming up", named[name], workloads[0], level, 0, is_warm_up=True)
    cells = [(workload, level) for level in sizes.levels for workload in workloads]
    samples = []
    for number, (workload, level), name in in_turn(list(named), cells, sizes.rounds):
        title = f"round {number + 1}/{sizes.rounds}"
        samples.append(run(title, named[name], workload, level, number, is_warm_up=False))
    first_tokens: dict[tuple[Setting, int], list[float]] = {}
    named = {str(setting): setting for setting in joining(engine)}
    for number, level, name in in_turn(list(named), _several(sizes), sizes.rounds):
        on_run(f"prompts, round {number + 1}/{sizes.rounds}: {name}, {level} streams")
        setting, loop = named[name], load_job(prompts, level, number, sizes.seed, -(-_JOINING // level))
        if setting.candidate != NONE:
            loop = replace(loop, spec_tokens=setting.tokens, spec_method=methods[setting.candidate])
        arm = arms[NONE if setting.candidate == NONE else engine.name]
        found, _ = machine.run(partial(arm.load, loop))
        seconds = first_tokens.setdefault((setting, level), [])
        seconds += [taken for phase in found.phases for taken in phase.progress.ttft]
    return Measured(engine, tuple(samples), first_tokens)


def _several(sizes: Sizes) -> list[int]:
    """The levels at which requests join others."""
    return [level for level in sizes.levels if level > 1]
