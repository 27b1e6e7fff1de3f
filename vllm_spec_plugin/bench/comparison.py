"""The comparison as a whole: what is compared, the rounds, and what they came to. Imports no vLLM."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from vllm_spec_plugin.bench.agreement import Agreement, compare
from vllm_spec_plugin.bench.arms import Arm
from vllm_spec_plugin.bench.prompts import prompts_of_round
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.bench.records import Job, Run
from vllm_spec_plugin.bench.summary import ArmSummary, summarise

NONE, STOCK, PLUGIN = "none", "stock", "plugin"
# Round, batch size, temperature, arm.
Turn = tuple[int, int, float, str]
_Cell = TypeVar("_Cell")

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
    def cells(self) -> list[tuple[int, float]]:
        """Every batch size with every temperature."""
        return list(itertools.product(self.batches, self.temperatures))

    def job(self, turn: Turn) -> Job:
        """The same for all arms."""
        number, batch, temperature, _ = turn
        prompts = prompts_of_round(self.prompts, batch, number)
        return Job(prompts, temperature, self.num_tokens, self.seed + number)


@dataclass(frozen=True)
class Results:
    """What a comparison found.

    Attributes:
        arms: their names, in order, with the K of each; 0 without speculation.
        summaries: by arm, batch size and temperature.
        agreements: by arm and batch size, where temperature 0 was measured: with the first arm.
        others: per run that counts, the cores that other processes used meanwhile; empty where nothing tells.
    """

    arms: dict[str, int]
    summaries: dict[tuple[str, int, float], ArmSummary]
    agreements: dict[tuple[str, int], Agreement] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)

    @property
    def reference(self) -> str:
        """The arm whose greedy outputs the others are compared with."""
        return next(iter(self.arms))


def in_turn(arms: Sequence[str], cells: Sequence[_Cell], rounds: int) -> Iterator[tuple[int, _Cell, str]]:
    """Who runs what, in order: round, cell, arm.

    What changes slowly on the machine meets all arms alike: they take turns, and none is always first.
    """
    for number in range(rounds):
        shift = number % len(arms)
        for cell in cells:
            for arm in (*arms[shift:], *arms[:shift]):
                yield number, cell, arm


def turns(arms: Sequence[str], cells: Sequence[tuple[int, float]], rounds: int) -> Iterator[Turn]:
    """`in_turn`, with the cells of a comparison."""
    return ((number, *cell, arm) for number, cell, arm in in_turn(arms, cells, rounds))


def num_runs(num_arms: int, workload: Workload) -> int:
    """How often an arm runs a job in `run_all`."""
    rounds = 1 + workload.rounds + (_PROFILED_ROUNDS if workload.profiled else 0)
    return num_arms * len(workload.cells) * rounds


def run_all(
    arms: Mapping[str, Arm],
    num_draft_tokens: Mapping[str, int],
    workload: Workload,
    machine: QuietMachine,
    on_run: Callable[[int, str], None],
) -> Results:
    """Warms the arms up, runs the rounds, and sums up.

    Args:
        arms: running, by name; the first one's greedy outputs are the reference.
        num_draft_tokens: K by name.
        workload: what they do.
        machine: chooses the moments.
        on_run: told before each run how many are done, and what it is.

    Raises:
        ArmError: an arm ended.
    """

    num_done = itertools.count()

    def run(title: str, turn: Turn, job: Job) -> Run:
        number, batch, temperature, name = turn
        on_run(next(num_done), f"{title}: {name}, batch {batch}, temperature {temperature:g}")
        answer, others = machine.run(lambda: arms[name].run(job))
        return Run(name, batch, temperature, number, answer, others)

    names, cells = list(arms), workload.cells
    for turn in turns(names, cells, 1):
        job = workload.job(turn)
        run("warming up", turn, replace(job, num_tokens=min(_WARM_UP_TOKENS, job.num_tokens)))
    runs = []
    for turn in turns(names, cells, workload.rounds):
        runs.append(run(f"round {turn[0] + 1}/{workload.rounds}", turn, workload.job(turn)))
    profiled = []
    for turn in turns(names, cells, _PROFILED_ROUNDS if workload.profiled else 0):
        profiled.append(run("parts of drafting", turn, replace(workload.job(turn), profiled=True)))
    summaries = {
        (name, batch, temperature): summarise(runs, profiled, name, batch, temperature, num_draft_tokens[name])
        for name in names
        for batch, temperature in cells
    }
    reference = names[0]
    agreements = {
        (name, batch): compare(runs, name, batch, reference, arms[reference].gap)
        for name in names[1:]
        for batch in workload.batches
        if 0.0 in workload.temperatures
    }
    others = [run.others for run in runs if run.others is not None]
    return Results({name: num_draft_tokens[name] for name in names}, summaries, agreements, others)
