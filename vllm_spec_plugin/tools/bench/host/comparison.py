"""The arms of the host-time benchmark, its rounds, and their figures."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arm_spec import choose_arms
from vllm_spec_plugin.tools.bench.arms import Base, PlannedArm, base_of, plan_arms
from vllm_spec_plugin.tools.bench.host.parts import PARTS
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.rounds import Run, others_of, run_rounds
from vllm_spec_plugin.tools.report import Measurements

# Whether the target is computed, and the number of requests.
Cell = tuple[bool, int]

ARMS = ("none", "stock:ngram", "stock:draft_model", "ngram:0,4", "draft_model:0,4", "optimal")
TARGETS = {False: "target replaced by a constant", True: "target computed"}


@dataclass(frozen=True)
class HostArm:
    """An arm of the comparison.

    Attributes:
        planned: its engine and draft length.
        repeats: whether its text repeats itself; else n-grams match nothing.
    """

    planned: PlannedArm
    repeats: bool = False


@dataclass(frozen=True)
class HostResults:
    """Findings of the benchmark.

    Attributes:
        arms: names, no speculation first.
        cells: in order.
        measurements: metrics of `figures`, by arm, target and number of requests.
        rounds: number of rounds.
        others: cores that other processes used, per run; empty where that is unknown.
    """

    arms: list[str]
    cells: list[Cell]
    measurements: Measurements
    rounds: int
    others: list[float]


def plan_host_arms(specs: Sequence[str], draft: str, optimal_tokens: int, folder: Path) -> dict[str, HostArm]:
    """Plans arms by name; no speculation comes first.

    Beside what every benchmark accepts there are ngram:K,K,... and draft_model:K,K,...: the plugin with that proposer.
    The text of n-gram arms repeats itself where they draft. In vLLM's own n-gram arm nothing matches.

    Args:
        specs: values of `--arm`.
        draft: the draft model, a folder's absolute path or a hub name.
        optimal_tokens: most tokens that `optimal` drafts.
        folder: where files may be written that the engines can read.

    Raises:
        UserError: a word says nothing.
        ConfigError: a plugin.yaml is not there, or has a mistake.
    """
    draft_model = base_of(None, draft, "greedy")
    found: dict[str, HostArm] = {}
    for number, spec in enumerate(("none", *specs)):
        own = folder / str(number)
        own.mkdir()
        method, _, lengths = spec.partition(":")
        if method not in ("ngram", "draft_model"):
            planned = plan_arms(choose_arms([spec]), draft_model, optimal_tokens, own)
            found |= {name: HostArm(arm) for name, arm in planned.items() if name not in found}
            continue
        base = draft_model
        if method == "ngram":
            base = Base(parse_config({"proposer": {"method": "ngram"}}, "n-grams"), "n-grams", draft)
        choices = [choice for choice in choose_arms([f"fixed:{lengths}"]) if choice.kind == "fixed"]
        for choice, arm in zip(choices, plan_arms(choices, base, optimal_tokens, own).values(), strict=True):
            repeats = method == "ngram" and arm.spec_tokens != 0
            found[f"{method.replace('_', ' ')}, K = {choice.tokens}"] = HostArm(arm, repeats)
    return found


def run_all(
    arms: Mapping[str, HostArm],
    engines: Mapping[str, Arm],
    cells: Sequence[Cell],
    job: HostJob,
    rounds: int,
    gate: NoiseGate,
    on_run: Callable[[int, str], None],
) -> HostResults:
    """Runs the rounds after a warm-up; see `run_rounds` for interrupts.

    Args:
        arms: by name, no speculation first.
        engines: running, by the arm's name.
        cells: what to measure.
        job: the rest of each job.
        rounds: number of rounds.
        gate: chooses the moments.
        on_run: called before each run with the number of runs done and a description.

    Raises:
        UserError: an arm ended.
    """

    def do(name: str, cell: Cell, number: int, is_warm_up: bool) -> HostAnswer:
        own = dataclasses.replace(
            job,
            num_requests=cell[1],
            num_steps=1 if is_warm_up else job.num_steps,
            is_computed=cell[0],
            repeats=arms[name].repeats,
            spec_tokens=arms[name].planned.spec_tokens,
        )
        return engines[name].host(own)

    return results_of(run_rounds(list(arms), cells, rounds, do, cell_text, gate, on_run), list(arms), cells)


def results_of(runs: Sequence[Run[Cell, HostAnswer]], arms: Sequence[str], cells: Sequence[Cell]) -> HostResults:
    """Sums up the runs of all arms and cells."""
    measurements = Measurements()
    for run in runs:
        measurements.add(run.arm, TARGETS[run.cell[0]], run.cell[1], run.round, figures(run.answer))
    return HostResults(list(arms), list(cells), measurements, 1 + max(run.round for run in runs), others_of(runs))


def figures(answer: HostAnswer) -> dict[str, float | None]:
    """Returns medians of a run's steps in seconds, and tokens per request and step.

    wall, cpu: of whole steps. host: CPU time without the models' passes. "wall, PART" and "cpu, PART": by part.
    """
    medians: dict[str, float | None] = {
        name: statistics.median(getattr(answer, name)) for name in ("wall", "cpu", "host")
    }
    for clock in ("wall", "cpu"):
        parts = getattr(answer, f"{clock}_parts")
        medians |= {f"{clock}, {part}": statistics.median(parts[part]) for part in PARTS}
    return medians | {"output_tokens": answer.output_tokens, "draft_tokens": answer.draft_tokens}


def cell_text(cell: Cell) -> str:
    """Returns a cell in words."""
    return f"{cell[1]} {'requests' if cell[1] > 1 else 'request'}, {TARGETS[cell[0]]}"
