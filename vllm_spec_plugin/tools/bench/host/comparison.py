"""The arms of the host-time benchmark, its rounds, and their figures."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arms import Base, PlannedArm, base_of, choose_arms, plan_arms
from vllm_spec_plugin.tools.bench.host.parts import DRAFT, PARTS, PROPOSER, VIEWS
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.rounds import Results, results_of, run_rounds
from vllm_spec_plugin.tools.report import plural

# Whether the target is computed, and the number of requests.
Cell = tuple[bool, int]

ARMS = ("none", "stock:ngram", "stock:draft_model", "ngram:0,4", "draft_model:0,4", "optimal")
TARGETS = {False: "target replaced by a constant", True: "target computed"}


@dataclasses.dataclass(frozen=True)
class HostArm(PlannedArm):
    """An arm of the comparison, and whether its text repeats itself; else n-grams match nothing."""

    repeats: bool = False


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
    draft_model = base_of(None, draft)
    ngram = Base(parse_config({"proposer": {"method": "ngram"}}, "n-grams"), "n-grams", draft)
    found: dict[str, HostArm] = {}
    for number, spec in enumerate(("none", *specs)):
        own = folder / str(number)
        own.mkdir()
        method, _, lengths = spec.partition(":")
        is_method = method in ("ngram", "draft_model")
        base = ngram if method == "ngram" else draft_model
        choices = choose_arms([f"fixed:{lengths}" if is_method else spec])
        for name, arm in plan_arms(choices, base, optimal_tokens, own).items():
            own_name = name.replace("fixed", method.replace("_", " ") + ",") if is_method else name
            repeats = method == "ngram" and arm.spec_tokens not in (0, None)
            found.setdefault(own_name, HostArm(**vars(arm), repeats=repeats))
    return found


def run_all(
    arms: Mapping[str, HostArm],
    engine_of: Callable[[str], Arm],
    cells: Sequence[Cell],
    job: HostJob,
    rounds: int,
    gate: NoiseGate,
    on_run: Callable[[int, str], None],
) -> Results[Cell]:
    """Runs the rounds after a warm-up; the parameters are those of `run_rounds`, and the rest of each job."""

    def do(name: str, cell: Cell, number: int, is_warm_up: bool) -> HostAnswer:
        own = dataclasses.replace(
            job,
            num_requests=cell[1],
            num_steps=1 if is_warm_up else job.num_steps,
            is_computed=cell[0],
            repeats=arms[name].repeats,
            spec_tokens=arms[name].spec_tokens,
        )
        return engine_of(name).host(own)

    runs = run_rounds(list(arms), cells, rounds, do, cell_text, gate, on_run)
    return results_of(runs, arms, cells, lambda cell: (TARGETS[cell[0]], cell[1]), figures)


def figures(answer: HostAnswer) -> dict[str, float | None]:
    """Returns medians of a run's steps in seconds, and tokens per request and step.

    wall, cpu: of whole steps. host: CPU time without the models' passes. "wall, PART" and "cpu, PART": by part.
    drafting: wall time of the proposer, its input and its model.
    """
    medians: dict[str, float | None] = {
        name: statistics.median(getattr(answer, name)) for name in ("wall", "cpu", "host")
    }
    for clock, parts in (("wall", answer.wall_parts), ("cpu", answer.cpu_parts)):
        medians |= {f"{clock}, {part}": statistics.median(parts[part]) for part in PARTS}
    drafting = map(sum, zip(*(answer.wall_parts[part] for part in (VIEWS, PROPOSER, DRAFT)), strict=True))
    medians["drafting"] = statistics.median(drafting) or None
    return medians | {"output_tokens": answer.output_tokens, "draft_tokens": answer.draft_tokens}


def cell_text(cell: Cell) -> str:
    """Returns a cell in words."""
    return f"{plural(cell[1], 'request')}, {TARGETS[cell[0]]}"
