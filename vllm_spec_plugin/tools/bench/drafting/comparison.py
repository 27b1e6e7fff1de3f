"""The benchmark of drafting: what every arm does, its rounds, and their figures."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arm_spec import NONE, stock_of
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.drafting.parts import PARTS
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.prompts import prompts_of_round
from vllm_spec_plugin.tools.bench.records import Answer, Job, Step
from vllm_spec_plugin.tools.bench.rounds import Run, others_of, run_rounds
from vllm_spec_plugin.tools.report import Measurements

# Batch size and temperature.
Cell = tuple[int, float]

# Where an arm's time goes. Regular steps hold the whole batch after its prompts, with K drafts each.
SHARES = ("drafting", "target", "prompts", "irregular", "between")
LIMITS = ("free", "verifying", "drafting", "measured", "rest")
_WARM_UP_TOKENS = 32
_PROFILED_ROUNDS = 3


@dataclass(frozen=True)
class Workload:
    """What every arm does.

    Attributes:
        prompts: at least as many as the largest batch.
        batches: numbers of concurrent requests.
        temperatures: of all requests of a batch.
        num_tokens: output tokens of each request.
        rounds: number of rounds.
        seed: of the first round; each has its own.
        profiled: whether rounds that measure the parts of drafting follow.
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

    @property
    def all_rounds(self) -> int:
        """Number of rounds with those that measure parts."""
        return self.rounds + (_PROFILED_ROUNDS if self.profiled else 0)

    def job(self, number: int, cell: Cell) -> Job:
        """Returns the job of a round, the same for all arms."""
        batch, temperature = cell
        prompts = prompts_of_round(self.prompts, batch, number % self.rounds)
        is_profiled = number >= self.rounds
        return Job(prompts, temperature, self.num_tokens, self.seed + number % self.rounds, is_profiled)


@dataclass(frozen=True)
class Results:
    """Findings of the benchmark.

    Attributes:
        lengths: K by arm, in order; 0 without speculation.
        cells: batch sizes with temperatures.
        measurements: metrics of `figures` and `limits`, by arm, temperature and batch size.
        rounds: number of rounds that all arms did.
        others: cores that other processes used, per run; empty where that is unknown.
    """

    lengths: dict[str, int]
    cells: list[Cell]
    measurements: Measurements
    rounds: int
    others: list[float]

    @property
    def stock(self) -> str | None:
        """The arm of vLLM's own speculation that others are compared with; None if there is none."""
        return stock_of(self.lengths)

    def median(self, arm: str, cell: Cell, metric: str) -> float | None:
        """Returns a metric's median; None if it was not measured."""
        return self.measurements.median(arm, *place_of(cell), metric)


def place_of(cell: Cell) -> tuple[str, int]:
    """Returns a cell as workload and level of `Measurements`."""
    return f"temperature {cell[1]:g}", cell[0]


def cell_text(cell: Cell) -> str:
    """Returns a cell in words."""
    return f"batch {cell[0]}, temperature {cell[1]:g}"


def run_all(
    arms: Mapping[str, PlannedArm],
    engines: Mapping[str, Arm],
    workload: Workload,
    gate: NoiseGate,
    on_run: Callable[[int, str], None],
) -> Results:
    """Warms the arms up and runs the rounds; see `run_rounds` for interrupts.

    Args:
        arms: by name, no speculation among them.
        engines: running, by the arm's name.
        workload: what they do.
        gate: chooses the moments.
        on_run: called before each run with the number of runs done and a description.

    Raises:
        UserError: an arm ended.
    """

    def do(name: str, cell: Cell, number: int, is_warm_up: bool) -> Answer:
        job = workload.job(number, cell)
        return engines[name].run(replace(job, num_tokens=min(_WARM_UP_TOKENS, job.num_tokens)) if is_warm_up else job)

    runs = run_rounds(list(arms), workload.cells, workload.all_rounds, do, cell_text, gate, on_run)
    lengths = {name: arm.plan.num_draft_tokens for name, arm in arms.items()}
    return results_of(runs, lengths, workload.cells, workload.rounds)


def results_of(
    runs: Sequence[Run[Cell, Answer]], lengths: Mapping[str, int], cells: Sequence[Cell], rounds: int
) -> Results:
    """Sums up runs; those from round number `rounds` on only tell the parts of drafting."""
    measurements = Measurements()
    for run in runs:
        values: dict[str, float | None] = {}
        if run.round < rounds:
            values = figures(run.answer, run.cell[0], lengths[run.arm])
        elif total := sum(run.answer.parts.values()):
            values = {f"part, {part}": run.answer.parts.get(part, 0.0) / total for part in PARTS}
        measurements.add(run.arm, *place_of(run.cell), run.round, values)
    for cell in cells:
        for arm, length in lengths.items():
            for number, values in limits(measurements, arm, cell, length):
                measurements.add(arm, *place_of(cell), number, values)
    done = min(rounds, 1 + max(run.round for run in runs))
    return Results(
        dict(lengths), list(cells), measurements, done, others_of([run for run in runs if run.round < rounds])
    )


def figures(answer: Answer, batch: int, num_draft_tokens: int) -> dict[str, float | None]:
    """Returns the metrics of one run; times in seconds, None without such a step or draft.

    target_step: median of regular steps, K + 1 tokens per request, without drafting. draft_step: time in the drafter
    over K. draft_step_prepared: with what the runner does to call it. tree_step: time that a regular step takes longer
    as its drafts are trees; tree_share: its share of the step. "share, X": shares of the whole time, see `SHARES`.
    """
    regular = [step for step in answer.steps if _is_regular(step, batch, num_draft_tokens)]
    whole = [step for step in regular if step.num_drafted and step.num_drafted == num_draft_tokens]
    has_trees = any(step.tree_seconds for step in regular)
    found: dict[str, float | None] = {
        "tokens_per_second": sum(map(len, answer.token_ids)) / answer.seconds,
        "target_step": _median(step.seconds - step.drafting_seconds for step in regular),
        "draft_step": _median(step.proposer_seconds / num_draft_tokens for step in whole),
        "draft_step_prepared": _median(step.drafting_seconds / num_draft_tokens for step in whole),
        "tree_step": _median(step.tree_seconds for step in regular) if has_trees else None,
        "tree_share": _median(step.tree_seconds / step.seconds for step in regular) if has_trees else None,
        "acceptance_length": 1 + answer.num_accepted_tokens / answer.num_drafts if answer.num_drafts else None,
        "acceptance_rate": answer.num_accepted_tokens / answer.num_draft_tokens if answer.num_draft_tokens else None,
    }
    seconds = dict.fromkeys(SHARES, 0.0)
    for step in answer.steps:
        if step.in_prompt:
            seconds["prompts"] += step.seconds
        elif _is_regular(step, batch, num_draft_tokens):
            seconds["drafting"] += step.drafting_seconds
            seconds["target"] += step.seconds - step.drafting_seconds
        else:
            seconds["irregular"] += step.seconds
    seconds["between"] = answer.seconds - sum(seconds.values())
    return found | {f"share, {name}": part / answer.seconds for name, part in seconds.items()}


def limits(
    measurements: Measurements, arm: str, cell: Cell, num_draft_tokens: int
) -> Iterator[tuple[int, dict[str, float | None]]]:
    """Yields by round how fast an arm can be over no speculation; nothing where a figure is missing.

    With A the acceptance length, T(n) a step with n tokens per request and d a draft step: A if drafting took no time
    and K + 1 tokens as long as one (free), A T(1) / T(K + 1) (verifying), and A T(1) / (T(K + 1) + K d) (drafting).
    measured: as it was; rest: share of "drafting" that is lost besides.
    """

    def of(name: str, metric: str) -> dict[int, float]:
        return measurements.rounds(name, *place_of(cell), metric)

    own = [
        of(arm, metric) for metric in ("acceptance_length", "target_step", "draft_step_prepared", "tokens_per_second")
    ]
    none = [of(NONE, metric) for metric in ("target_step", "tokens_per_second")]
    for number in sorted(set.intersection(*(set(rounds) for rounds in (*own, *none)))):
        free, several, draft_step, speed = (rounds[number] for rounds in own)
        one, plain_speed = (rounds[number] for rounds in none)
        drafting = free * one / (several + num_draft_tokens * draft_step)
        measured = speed / plain_speed
        found = (free, free * one / several, drafting, measured, 1 - measured / drafting)
        yield number, {f"limit, {name}": value for name, value in zip(LIMITS, found, strict=True)}


def _is_regular(step: Step, batch: int, num_draft_tokens: int) -> bool:
    return not step.in_prompt and step.num_requests == batch and step.num_tokens == batch * (num_draft_tokens + 1)


def _median(values: Iterator[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
