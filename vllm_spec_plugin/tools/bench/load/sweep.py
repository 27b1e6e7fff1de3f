"""The sweep as a whole: warm-up, rounds, and what they came to."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_spec_plugin.tools.bench.arms import Arm
from vllm_spec_plugin.tools.bench.load.agreement import Agreement, Gap, compare
from vllm_spec_plugin.tools.bench.load.records import LoadJob, LoadRun
from vllm_spec_plugin.tools.bench.load.summary import LoadSummary, summarise
from vllm_spec_plugin.tools.bench.load.switching import Switch, switches
from vllm_spec_plugin.tools.bench.load.workloads import SWITCHING, Sizes, load_job
from vllm_spec_plugin.tools.bench.planned_arms import PlannedArm
from vllm_spec_plugin.tools.bench.quiet import QuietMachine
from vllm_spec_plugin.tools.bench.rounds import in_turn

# A workload and the number of its streams.
Cell = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """What every arm does.

    Attributes:
        cells: workloads with numbers of streams.
        prompts: at least one.
        sizes: how much is asked for.
        rounds: how often each arm does everything.
        seed: of the first round.
    """

    cells: tuple[Cell, ...]
    prompts: tuple[str, ...]
    sizes: Sizes
    rounds: int
    seed: int

    def job(self, cell: Cell, number: int, *, is_warm_up: bool = False) -> LoadJob:
        """The same for all arms."""
        workload, streams = cell
        return load_job(workload, streams, number, self.prompts, self.sizes, self.seed, is_warm_up=is_warm_up)


@dataclass(frozen=True)
class SweepResults:
    """What a sweep found.

    Attributes:
        arms: their names, in order; the first drafts nothing.
        fixed: those of them that the best fixed draft length is chosen from.
        summaries: by arm, workload and streams.
        switches: of the workload `switching`, by its streams.
        rounds: that all arms did.
        agreements: of greedy outputs with the first arm's, by arm, workload and streams; only where there were any.
        others: per run that counts, the cores that other processes used meanwhile; empty where nothing tells.
    """

    arms: tuple[str, ...]
    fixed: tuple[str, ...]
    summaries: dict[tuple[str, str, int], LoadSummary]
    rounds: int
    switches: dict[int, Switch] = field(default_factory=dict)
    agreements: dict[tuple[str, str, int], Agreement] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)

    @property
    def reference(self) -> str:
        """The arm that drafts nothing."""
        return self.arms[0]

    @property
    def cells(self) -> list[Cell]:
        """Workloads with numbers of streams, in order."""
        return list(dict.fromkeys((workload, streams) for _, workload, streams in self.summaries))

    @property
    def num_wrong(self) -> int:
        """Greedy outputs that differ from the reference's for another reason than rounding."""
        return sum(agreement.wrong for agreement in self.agreements.values())


def num_runs(num_arms: int, plan: Plan) -> int:
    """How often an arm runs a job in `run_sweep`."""
    return num_arms * len(plan.cells) * (1 + plan.rounds)


def run_sweep(
    arms: Mapping[str, PlannedArm],
    engines: Mapping[str, Arm],
    plan: Plan,
    machine: QuietMachine,
    on_run: Callable[[int, str], None],
) -> SweepResults:
    """Warms the arms up, runs the rounds, compares the outputs, and sums up.

    If it is interrupted, or the process told to end, whole rounds that are done count; without any it raises.

    Args:
        arms: by name, the one without drafts first.
        engines: running, by the arm's name.
        plan: what they do.
        machine: chooses the moments.
        on_run: told before each run how many are done, and what it is.

    Raises:
        UserError: an arm ended.
    """
    num_done = itertools.count()

    def run(title: str, number: int, cell: Cell, name: str, job: LoadJob) -> LoadRun:
        on_run(next(num_done), f"{title}: {name}, {cell[0]}, {cell[1]} {'streams' if cell[1] > 1 else 'stream'}")
        own = replace(job, spec_tokens=arms[name].spec_tokens)
        answer, others = machine.run(lambda: engines[name].load(own))
        return LoadRun(name, *cell, number, answer, others)

    names = list(arms)
    for number, cell, name in in_turn(names, plan.cells, 1):
        run("warming up", number, cell, name, plan.job(cell, number, is_warm_up=True))
    runs: list[LoadRun] = []
    try:
        for number, cell, name in in_turn(names, plan.cells, plan.rounds):
            runs.append(run(f"round {number + 1}/{plan.rounds}", number, cell, name, plan.job(cell, number)))
    except (KeyboardInterrupt, SystemExit):
        whole = len(runs) // (len(names) * len(plan.cells))
        if not whole:
            raise
        runs = [run for run in runs if run.round < whole]
    on_run(next(num_done), "comparing outputs at temperature 0")
    return results_of(runs, arms, plan.cells, agreements(runs, names, plan, engines[names[0]].gap))


def agreements(
    runs: Sequence[LoadRun], arms: Sequence[str], plan: Plan, gap: Gap
) -> dict[tuple[str, str, int], Agreement]:
    """How greedy outputs compare with the first arm's, by arm, workload and streams; only where there were any."""
    # Arms often part from the reference at the same place.
    asked = functools.cache(gap)
    found = {}
    for cell in plan.cells:
        here = [run for run in runs if (run.workload, run.streams) == cell]
        jobs = {number: plan.job(cell, number) for number in {run.round for run in here}}
        theirs = [run for run in here if run.arm == arms[0]]
        for name in arms[1:]:
            agreement = compare([run for run in here if run.arm == name], theirs, jobs, asked)
            if agreement.outputs:
                found[(name, *cell)] = agreement
    return found


def results_of(
    runs: Sequence[LoadRun],
    arms: Mapping[str, PlannedArm],
    cells: Sequence[Cell],
    agreements: Mapping[tuple[str, str, int], Agreement],
) -> SweepResults:
    """What the runs of all arms and cells come to."""
    return SweepResults(
        tuple(arms),
        tuple(name for name, arm in arms.items() if arm.is_fixed),
        {(name, *cell): summarise(runs, name, *cell) for cell in cells for name in arms},
        1 + max(run.round for run in runs),
        {
            streams: switches([run for run in runs if (run.workload, run.streams) == (workload, streams)], list(arms))
            for workload, streams in cells
            if workload == SWITCHING
        },
        dict(agreements),
        [run.others for run in runs if run.others is not None],
    )
