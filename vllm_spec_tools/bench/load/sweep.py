"""The load sweep: what every arm does, and what it comes to."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_spec_tools.bench.arms import Engines, PlannedArm
from vllm_spec_tools.bench.load.given import given_job
from vllm_spec_tools.bench.load.workloads import EQUAL, FIRST_PASS, WARM_PASSES, LoadSizes, load_job
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import Cell, LoadAnswer, LoadJob, LoadOutput, LoadRequest, LoadRun
from vllm_spec_tools.bench.run_file import RunFile
from vllm_spec_tools.certify.greedy import first_differences, tolerance_of
from vllm_spec_tools.report import Measurements, percentiles, plural

if TYPE_CHECKING:
    from vllm_spec_tools.planner.planning import Passes

# Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id. The schema
# of the output comes last.
TopTwo = Callable[[str, tuple[int, ...], str], dict[int, float]]
# Attributes of `Progress`.
LATENCIES = ("ttft", "tpot", "latency")


class Agreement(NamedTuple):
    """Number of outputs compared, of those that part where two tokens tie, and of those that part elsewhere."""

    outputs: int
    rounding: int
    wrong: int


def compare(
    ours: Sequence[LoadRun], theirs: Sequence[LoadRun], jobs: Mapping[int, LoadJob], top_two: TopTwo, tolerance: float
) -> Agreement:
    """Compares what both arms wrote of each request at temperature 0; a faster one got further.

    Args:
        theirs: the reference's outputs, token ids per request.
        tolerance: of ties, see `certify.greedy.TOLERANCES`.
    """
    references = {run.round: run for run in theirs}
    pairs = [
        pair
        for run in ours
        if run.round in references
        for pair in _greedy_pairs(run, references[run.round], jobs[run.round])
    ]
    requests, tokens, expected = zip(*pairs, strict=True) if pairs else ((), (), ())

    def asked(i: int, position: int) -> dict[int, float]:
        return top_two(requests[i].prompt, tuple(expected[i][:position]), requests[i].schema)

    found = first_differences(tokens, expected, asked, tolerance)
    rounding = sum(one.is_tie for one in found)
    return Agreement(len(pairs), rounding, len(found) - rounding)


def _greedy_pairs(run: LoadRun, reference: LoadRun, job: LoadJob) -> Iterator[tuple[LoadRequest, list[int], list[int]]]:
    """Yields requests at temperature 0 with the common part of what both arms wrote, if both did.

    A later turn counts as long as both arms had the same prompt: an earlier answer may differ by a tie.
    """
    for phase, our, their in zip(job.phases, run.answer.phases, reference.answer.phases, strict=True):
        for number, pair in enumerate(zip(our.progress.outputs, their.progress.outputs, strict=False)):
            # The list of requests starts again at its end.
            request = phase.requests[number % len(phase.requests)]
            if request.temperature == 0:
                turns = zip(*((one, *one.turns) for one in pair), strict=False)
                for one, other in itertools.takewhile(lambda turn: turn[0].prompt == turn[1].prompt, turns):
                    if one.token_ids and other.token_ids:
                        yield replace(request, prompt=one.prompt or request.prompt), *_shared(one, other)


def _shared(one: LoadOutput, other: LoadOutput) -> tuple[list[int], list[int]]:
    """Returns the common part of two outputs; the end of the shorter one counts if it has ended."""
    short, long = sorted((one, other), key=lambda output: len(output.token_ids))
    length = len(short.token_ids) + (short.has_ended and len(long.token_ids) > len(short.token_ids))
    return one.token_ids[:length], other.token_ids[:length]


@dataclass(frozen=True)
class SweepPlan:
    """Load that every arm gets.

    Attributes:
        given: requests of the workloads that a file of prompts names.
    """

    cells: tuple[Cell, ...]
    prompts: tuple[str, ...]
    sizes: LoadSizes
    rounds: int
    seed: int
    given: Mapping[str, tuple[LoadRequest, ...]] = field(default_factory=dict)

    def job(self, cell: Cell, number: int, *, is_warm_up: bool = False) -> LoadJob:
        """Returns the job of a round, the same for all arms."""
        workload, streams = cell
        if workload in self.given:
            return given_job(self.given[workload], streams, number, self.sizes, self.seed, is_warm_up=is_warm_up)
        return load_job(workload, streams, number, self.prompts, self.sizes, self.seed, is_warm_up=is_warm_up)


@dataclass(frozen=True)
class SweepResults:
    """Findings of a sweep.

    Attributes:
        arms: names in order; the first is no speculation.
        rounds: number of rounds that all arms did.
        measurements: metrics by arm, workload, level and round.
        others: cores that other processes used, per run; empty where that is unknown.
        fixed: arms that the best fixed draft length is chosen from.
        stock: arms of vLLM's own speculation, without the plugin.
        agreements: of greedy outputs with the first arm's, by arm, workload and streams.
    """

    arms: tuple[str, ...]
    cells: tuple[Cell, ...]
    rounds: int
    measurements: Measurements
    others: list[float]
    fixed: tuple[str, ...]
    stock: tuple[str, ...]
    agreements: dict[tuple[str, str, int], Agreement]

    @property
    def reference(self) -> str:
        """Returns the arm without speculation."""
        return self.arms[0]

    @property
    def levels(self) -> dict[str, list[int]]:
        """Numbers of streams by workload."""
        return {workload: [n for name, n in self.cells if name == workload] for workload, _ in self.cells}

    @property
    def num_wrong(self) -> int:
        """Greedy outputs that differ from the reference's for another reason than rounding."""
        return sum(agreement.wrong for agreement in self.agreements.values())

    def fastest(self, arms: Sequence[str], workload: str, streams: int) -> str | None:
        """Returns the arm with the highest median throughput, such as of `fixed` or `stock`; None without arms."""
        speeds = {arm: self.measurements.median(arm, workload, streams, "tokens_per_second") for arm in arms}
        return max(arms, key=lambda arm: speeds[arm] or 0.0, default=None)


class Turn(NamedTuple):
    """A job of an arm, which does not count if it is a warm-up."""

    round: int
    cell: Cell
    arm: str
    is_warm_up: bool = False


def turns(arms: Sequence[str], cells: Sequence[Cell], rounds: int, *, one_at_a_time: bool = False) -> list[Turn]:
    """Returns all jobs in the order in which they run.

    Slow changes of the machine meet all arms alike: they take turns, and none is always first. Warm-ups come first. One
    at a time, an arm runs all cells of a round before the next arm, every second round has the arms in reverse, and
    each job has a warm-up before it, as its engine has just started.
    """
    found = []
    if one_at_a_time:
        for number in range(rounds):
            for arm in arms[:: -1 if number % 2 else 1]:
                for cell in cells:
                    found += [Turn(number, cell, arm, True), Turn(number, cell, arm)]
        return found
    for number in (None, *range(rounds)):
        shift = (number or 0) % len(arms)
        for cell in cells:
            found += [Turn(number or 0, cell, arm, number is None) for arm in (*arms[shift:], *arms[:shift])]
    return found


def run_rounds(
    arms: Mapping[str, PlannedArm],
    engines: Engines,
    load: "SweepPlan | Passes",
    gate: NoiseGate,
    on_run: Callable[[str], None],
    *,
    one_at_a_time: bool = False,
    file: RunFile | None = None,
) -> Iterator[LoadRun]:
    """Warms the arms up and runs the rounds; yields each run that counts.

    Args:
        on_run: called before each run with a description.
        one_at_a_time: see `turns`; jobs are not repeated.
        file: gets each run; those that it has are not run again.

    Raises:
        UserError: an arm ended.
    """

    def work(name: str, number: int, job: LoadJob) -> LoadAnswer:
        asked = replace(job, spec_tokens=arms[name].spec_tokens, spec_method=arms[name].spec_method)
        return engines.of(name, number).load(asked)

    kept = {} if file is None else dict(file.kept)
    for number, cell, name, is_warm_up in turns(list(arms), load.cells, load.rounds, one_at_a_time=one_at_a_time):
        if (found := kept.get((name, cell, number))) is not None:
            if not is_warm_up:
                yield found
            # A warm-up is for the rounds that are left.
            if not is_warm_up or one_at_a_time or all((name, cell, n) in kept for n in range(load.rounds)):
                continue
        title = "warming up" if is_warm_up else f"round {number + 1}/{load.rounds}"
        on_run(f"{title}: {name}, {cell[0]}, {plural(cell[1], 'stream')}")
        job = load.job(cell, number, is_warm_up=is_warm_up)
        answer, others = gate.run(functools.partial(work, name, number, job), repeats=not one_at_a_time)
        if not is_warm_up:
            run = LoadRun(name, cell, number, answer, others)
            if file is not None:
                file.add(run)
            yield run


def run_sweep(
    arms: Mapping[str, PlannedArm],
    engines: Engines,
    plan: SweepPlan,
    gate: NoiseGate,
    on_run: Callable[[str], None],
    *,
    one_at_a_time: bool = False,
    file: RunFile | None = None,
) -> SweepResults:
    """Runs the rounds, see `run_rounds`, and compares greedy outputs.

    An interrupt, or a signal to end, ends the rounds with the whole ones that are done; without any it is raised.
    """
    names, runs = list(arms), list[LoadRun]()

    # Arms often part from the reference at the same position.
    @functools.cache
    def top_two(prompt: str, token_ids: tuple[int, ...], schema: str) -> dict[int, float]:
        return engines.of(names[0]).top_two(prompt, token_ids, schema)

    try:
        for run in run_rounds(arms, engines, plan, gate, on_run, one_at_a_time=one_at_a_time, file=file):
            runs.append(run)
    except (KeyboardInterrupt, SystemExit):
        runs = [run for run in runs if run.round < len(runs) // (len(names) * len(plan.cells))]
        if not runs:
            raise
    on_run("comparing greedy outputs")
    tolerance, agreements = tolerance_of(engines.facts[names[0]]["dtype"]), dict[tuple[str, str, int], Agreement]()
    for cell in plan.cells:
        here = {name: [run for run in runs if run.arm == name and run.cell == cell] for name in names}
        jobs = {run.round: plan.job(cell, run.round) for run in here[names[0]]}
        for name in names[1:]:
            agreement = compare(here[name], here[names[0]], jobs, top_two, tolerance)
            if agreement.outputs:
                agreements[name, *cell] = agreement
    return results_of(runs, arms, plan.cells, agreements)


@dataclass(frozen=True)
class Sweep:
    """A comparison of arms; see `run_sweep`."""

    arms: Mapping[str, PlannedArm]
    plan: SweepPlan
    new_gate: Callable[[], NoiseGate]
    one_at_a_time: bool = False
    file: RunFile | None = None

    @property
    def total(self) -> int:
        """Counts the jobs, and the comparison of greedy outputs."""
        return 1 + len(turns(list(self.arms), self.plan.cells, self.plan.rounds, one_at_a_time=self.one_at_a_time))

    def run(self, engines: Engines, on_run: Callable[[str], None], origin: Mapping[str, Any]) -> SweepResults:
        """Runs it; takes what a `Recommender` takes."""
        kind: Any = {"one_at_a_time": self.one_at_a_time, "file": self.file}
        return run_sweep(self.arms, engines, self.plan, self.new_gate(), on_run, **kind)


def results_of(
    runs: Sequence[LoadRun],
    arms: Mapping[str, PlannedArm],
    cells: Sequence[Cell],
    agreements: Mapping[tuple[str, str, int], Agreement],
) -> SweepResults:
    """Sums up the runs of all arms and cells."""
    fixed = tuple(name for name, arm in arms.items() if arm.is_fixed)
    stock, names = tuple(name for name, arm in arms.items() if arm.is_stock), tuple(arms)
    shown = [own for cell in cells for own in (cell, *([(FIRST_PASS, cell[1])] if cell[0] == EQUAL else []))]
    split = [own for run in runs for own in _by_pass(run)]
    measurements = Measurements()
    for run in sorted(split, key=lambda run: (shown.index(run.cell), names.index(run.arm))):
        measurements.add(run.arm, *run.cell, run.round, figures(run.answer) | {"other_cores": run.others})
    others = [run.others for run in split if run.others is not None]
    num_rounds = 1 + max(run.round for run in runs)
    return SweepResults(names, tuple(shown), num_rounds, measurements, others, fixed, stock, dict(agreements))


def _by_pass(run: LoadRun) -> Iterator[LoadRun]:
    """Yields a run; one of passes as its first pass, and as the median one of its warm passes."""
    workload, streams = run.cell
    if workload != EQUAL:
        yield run
        return
    first, *_ = phases = run.answer.phases
    warm = sorted(phases[-WARM_PASSES:], key=lambda phase: phase.progress.tokens_per_second)[WARM_PASSES // 2]
    for name, phase in ((EQUAL, warm), (FIRST_PASS, first)):
        yield replace(run, cell=(name, streams), answer=replace(run.answer, phases=[phase]))


def figures(answer: LoadAnswer) -> dict[str, float | None]:
    """Returns the metrics of one run; times in seconds.

    tokens_per_second: output tokens over the whole time. ttft_p50 and so on: percentiles over the requests of
    `LATENCIES`, see `Progress`. acceptance_length: 1 + accepted / drafts. draft_length: verified draft tokens per
    request and step that brought it tokens. drafts, draft_tokens, accepted_tokens, preemptions: by vLLM's count.
    """
    phases = answer.phases
    latencies: dict[str, float | None] = {}
    for name in LATENCIES:
        seconds = [value for phase in phases for value in getattr(phase.progress, name)]
        latencies |= {f"{name}_{share}": value for share, value in percentiles(seconds).items()}
    drafts = sum(phase.num_drafts for phase in phases)
    draft_tokens = sum(phase.num_draft_tokens for phase in phases)
    accepted = sum(phase.num_accepted_tokens for phase in phases)
    return {
        "tokens_per_second": answer.tokens_per_second,
        **latencies,
        "acceptance_length": 1 + accepted / drafts if drafts else None,
        "draft_length": draft_tokens / sum(phase.progress.request_steps for phase in phases),
        "drafts": drafts,
        "draft_tokens": draft_tokens,
        "accepted_tokens": accepted,
        "output_tokens": sum(phase.progress.tokens[-1] for phase in phases),
        "preemptions": answer.preemptions,
    }
