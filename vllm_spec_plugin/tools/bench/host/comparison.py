"""The arms, the rounds, and what they come to."""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.tools.bench.arm_words import NONE, STOCK_METHODS, Fixed, choose_arms
from vllm_spec_plugin.tools.bench.arms import Arm
from vllm_spec_plugin.tools.bench.host.parts import PARTS
from vllm_spec_plugin.tools.bench.host.records import HostJob, HostRun
from vllm_spec_plugin.tools.bench.planned_arms import Base, PlannedArm, base_of, plan_arms
from vllm_spec_plugin.tools.bench.quiet import QuietMachine
from vllm_spec_plugin.tools.bench.rounds import in_turn
from vllm_spec_plugin.tools.bench.spread import Spread

# Whether the target is computed, and the number of requests.
Cell = tuple[bool, int]

ARMS = ("none", "stock:ngram", "stock:draft_model", "ngram:0,4", "draft_model:0,4", "optimal")


@dataclass(frozen=True)
class HostArm:
    """An arm of the comparison.

    Attributes:
        planned: its engine and draft length.
        repeats: whether its text repeats itself; else n-grams match nothing.
    """

    planned: PlannedArm
    repeats: bool = False


def plan_host_arms(words: Sequence[str], draft: str, optimal_tokens: int, folder: Path) -> dict[str, HostArm]:
    """Plans the arms of words, by name; `none` comes first.

    Beside the words of every benchmark there are ngram:K,K,... and draft_model:K,K,...: ours with that proposer. The
    text of n-gram arms repeats itself where they draft, but not for stock's: that one finds nothing to match.

    Args:
        words: the words of `--arm`.
        draft: the draft model, a folder's absolute path or a hub name.
        optimal_tokens: most tokens that `optimal` drafts.
        folder: where files may be written that the engines can read.

    Raises:
        UserError: a word says nothing.
        ConfigError: a plugin.yaml is not there, or has a mistake.
    """
    draft_model = base_of(None, draft, "greedy")
    found: dict[str, HostArm] = {}
    for number, word in enumerate((NONE, *words)):
        own, at = folder / str(number), word.partition(":")
        own.mkdir()
        if at[0] not in STOCK_METHODS:
            planned = plan_arms(choose_arms([word]), draft_model, optimal_tokens, own)
            found |= {name: HostArm(arm) for name, arm in planned.items() if name not in found}
            continue
        base = draft_model
        if at[0] == "ngram":
            base = Base(parse_config({"proposer": {"method": "ngram"}}, "n-grams"), "n-grams", draft)
        choices = [choice for choice in choose_arms([f"fixed:{at[2]}"]) if isinstance(choice, Fixed)]
        for name, arm in plan_arms(choices, base, optimal_tokens, own).items():
            found[f"{at[0].replace('_', ' ')}, {name}"] = HostArm(
                arm, repeats=at[0] == "ngram" and arm.spec_tokens != 0
            )
    return found


@dataclass(frozen=True)
class HostSummary:
    """What one arm's steps took in one cell: per round, the median of its steps, in seconds.

    Attributes:
        wall: of whole steps.
        cpu: CPU time of the engine's thread.
        host: CPU time of the step without the models' passes.
        wall_parts: by part.
        cpu_parts: by part, CPU time.
        output_tokens: per request and step, of all rounds.
        draft_tokens: as that, verified ones.
    """

    wall: dict[int, float]
    cpu: dict[int, float]
    host: dict[int, float]
    wall_parts: dict[str, dict[int, float]]
    cpu_parts: dict[str, dict[int, float]]
    output_tokens: float
    draft_tokens: float


@dataclass(frozen=True)
class HostResults:
    """What the benchmark found.

    Attributes:
        arms: names, `none` first.
        cells: in order.
        summaries: by arm and cell.
        others: per run, the cores that other processes used meanwhile; empty where nothing tells.
    """

    arms: list[str]
    cells: list[Cell]
    summaries: dict[tuple[str, Cell], HostSummary]
    others: list[float]

    def added(self, arm: str, cell: Cell) -> Spread | None:
        """Returns the host seconds per step that an arm has over none, round by round."""
        ours, none = self.summaries[arm, cell].host, self.summaries[self.arms[0], cell].host
        return Spread.of(ours[number] - none[number] for number in ours.keys() & none.keys())


def run_all(
    arms: Mapping[str, HostArm],
    engines: Mapping[str, Arm],
    cells: Sequence[Cell],
    job: HostJob,
    rounds: int,
    machine: QuietMachine,
    on_run: Callable[[int, str], None],
) -> HostResults:
    """Runs the rounds, arms in turn, after one that does not count.

    Args:
        arms: by name, `none` first.
        engines: running, by the arm's name.
        cells: what to measure.
        job: the rest of each job.
        rounds: how often each arm does everything.
        machine: chooses the moments.
        on_run: told before each run how many are done, and what it is.

    Raises:
        UserError: an arm ended.
    """
    runs, num_done = [], itertools.count()
    for is_warm_up in (True, False):
        for number, cell, name in in_turn(list(arms), cells, 1 if is_warm_up else rounds):
            is_computed, num_requests = cell
            title = "warming up" if is_warm_up else f"round {number + 1}/{rounds}"
            on_run(next(num_done), f"{title}: {name}, {cell_text(cell)}")
            own = dataclasses.replace(
                job,
                num_requests=num_requests,
                num_steps=1 if is_warm_up else job.num_steps,
                is_computed=is_computed,
                repeats=arms[name].repeats,
                spec_tokens=arms[name].planned.spec_tokens,
            )
            answer, others = machine.run(functools.partial(engines[name].host, own))
            if not is_warm_up:
                runs.append(HostRun(name, cell, number, answer, others))
    return HostResults(
        list(arms),
        list(cells),
        {(name, cell): summarise(runs, name, cell) for cell in cells for name in arms},
        [run.others for run in runs if run.others is not None],
    )


def num_runs(num_arms: int, num_cells: int, rounds: int) -> int:
    """Returns how often an arm runs a job in `run_all`."""
    return num_arms * num_cells * (1 + rounds)


def summarise(runs: Iterable[HostRun], arm: str, cell: Cell) -> HostSummary:
    """Summarises one arm's runs in one cell; there is at least one."""
    own = {run.round: run.answer for run in runs if (run.arm, run.cell) == (arm, cell)}

    def medians(values: Mapping[int, Sequence[float]]) -> dict[int, float]:
        return {number: statistics.median(steps) for number, steps in values.items()}

    wall_parts, cpu_parts = (
        {part: medians({number: getattr(answer, clock)[part] for number, answer in own.items()}) for part in PARTS}
        for clock in ("wall_parts", "cpu_parts")
    )
    return HostSummary(
        medians({number: answer.wall for number, answer in own.items()}),
        medians({number: answer.cpu for number, answer in own.items()}),
        medians({number: answer.host for number, answer in own.items()}),
        wall_parts,
        cpu_parts,
        statistics.mean(answer.output_tokens for answer in own.values()),
        statistics.mean(answer.draft_tokens for answer in own.values()),
    )


def target_text(is_computed: bool) -> str:
    """Returns a cell's target in words."""
    return "target computed" if is_computed else "target replaced by a constant"


def cell_text(cell: Cell) -> str:
    """Returns a cell in words."""
    return f"{cell[1]} {'requests' if cell[1] > 1 else 'request'}, {target_text(cell[0])}"
