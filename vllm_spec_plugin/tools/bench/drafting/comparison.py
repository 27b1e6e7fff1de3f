"""The measurement as a whole: what is measured, the rounds, and what they came to."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_spec_plugin.tools.bench.arm_words import NONE, stock_of
from vllm_spec_plugin.tools.bench.arms import Arm
from vllm_spec_plugin.tools.bench.drafting.summary import ArmSummary, Limit, limit, summarise
from vllm_spec_plugin.tools.bench.planned_arms import PlannedArm
from vllm_spec_plugin.tools.bench.prompts import prompts_of_round
from vllm_spec_plugin.tools.bench.quiet import QuietMachine
from vllm_spec_plugin.tools.bench.records import Job, Run
from vllm_spec_plugin.tools.bench.rounds import in_turn

# Batch size and temperature.
Cell = tuple[int, float]

_WARM_UP_TOKENS = 32
_PROFILED_ROUNDS = 3


@dataclass(frozen=True)
class Workload:
    """What every arm does.

    Attributes:
        prompts: at least as many as the largest batch.
        batches: requests at once.
        temperatures: theirs.
        num_tokens: that each request gets.
        rounds: how often each arm does everything.
        seed: of the first round; each has its own.
        profiled: whether rounds that tell the parts of drafting follow.
    """

    prompts: tuple[str, ...]
    batches: tuple[int, ...]
    temperatures: tuple[float, ...]
    num_tokens: int
    rounds: int
    seed: int
    profiled: bool = False

    @property
    def cells(self) -> list[Cell]:
        """Every batch size with every temperature."""
        return list(itertools.product(self.batches, self.temperatures))

    def job(self, number: int, cell: Cell) -> Job:
        """The same for all arms."""
        batch, temperature = cell
        prompts = prompts_of_round(self.prompts, batch, number)
        return Job(prompts, temperature, self.num_tokens, self.seed + number)


@dataclass(frozen=True)
class Results:
    """What a measurement found.

    Attributes:
        arms: their names, in order, with the K of each; 0 without speculation.
        summaries: by arm, batch size and temperature.
        others: per run that counts, the cores that other processes used meanwhile; empty where nothing tells.
    """

    arms: dict[str, int]
    summaries: dict[tuple[str, int, float], ArmSummary]
    others: list[float]

    @property
    def stock(self) -> str | None:
        """The arm of vLLM's own speculation that others are compared with; None if there is none."""
        return stock_of(self.arms)

    def none(self, summary: ArmSummary) -> ArmSummary:
        """The same work without speculation."""
        return self.summaries[NONE, summary.batch, summary.temperature]

    def by_cell(self) -> Iterator[ArmSummary]:
        """The summaries, all arms of a batch size and temperature together."""
        cells = dict.fromkeys(key[1:] for key in self.summaries)
        return (self.summaries[arm, *cell] for cell in cells for arm in self.arms)


def limits(results: Results) -> Iterator[tuple[ArmSummary, Limit]]:
    """What drafts, with its limit, where all that it takes was measured."""
    for summary in results.by_cell():
        found = limit(summary, results.none(summary)) if summary.num_draft_tokens else None
        if found is not None:
            yield summary, found


def num_runs(num_arms: int, workload: Workload) -> int:
    """How often an arm runs a job in `run_all`."""
    rounds = 1 + workload.rounds + (_PROFILED_ROUNDS if workload.profiled else 0)
    return num_arms * len(workload.cells) * rounds


def run_all(
    arms: Mapping[str, PlannedArm],
    engines: Mapping[str, Arm],
    workload: Workload,
    machine: QuietMachine,
    on_run: Callable[[int, str], None],
) -> Results:
    """Warms the arms up, runs the rounds, and sums up.

    Args:
        arms: by name, `none` among them.
        engines: running, by the arm's name.
        workload: what they do.
        machine: chooses the moments.
        on_run: told before each run how many are done, and what it is.

    Raises:
        UserError: an arm ended.
    """
    num_done = itertools.count()

    def run(title: str, number: int, cell: Cell, name: str, job: Job) -> Run:
        on_run(next(num_done), f"{title}: {name}, batch {cell[0]}, temperature {cell[1]:g}")
        answer, others = machine.run(lambda: engines[name].run(job))
        return Run(name, *cell, number, answer, others)

    names, cells = list(arms), workload.cells
    for number, cell, name in in_turn(names, cells, 1):
        job = workload.job(number, cell)
        run("warming up", number, cell, name, replace(job, num_tokens=min(_WARM_UP_TOKENS, job.num_tokens)))
    runs = []
    for number, cell, name in in_turn(names, cells, workload.rounds):
        runs.append(run(f"round {number + 1}/{workload.rounds}", number, cell, name, workload.job(number, cell)))
    profiled = []
    for number, cell, name in in_turn(names, cells, _PROFILED_ROUNDS if workload.profiled else 0):
        job = replace(workload.job(number, cell), profiled=True)
        profiled.append(run("parts of drafting", number, cell, name, job))
    lengths = {name: arm.plan.num_draft_tokens for name, arm in arms.items()}
    return Results(
        lengths,
        {(name, *cell): summarise(runs, profiled, name, *cell, k) for name, k in lengths.items() for cell in cells},
        [run.others for run in runs if run.others is not None],
    )
