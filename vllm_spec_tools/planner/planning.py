"""The plan from beginning to end: engines start, are measured, and end; never more than two at once."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from vllm_spec_plugin.compat.engine_args import device_memory
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.arms import Engines
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments, plan_file
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import Request
from vllm_spec_tools.memory import check_memory, need_of
from vllm_spec_tools.planner import measuring
from vllm_spec_tools.planner.candidates import NONE, Engine, Heads, Measured, chain_engines, tree_engine
from vllm_spec_tools.planner.forecast import NoTreeError, forecasts, tree_size
from vllm_spec_tools.planner.measuring import RECOMMENDED, Sizes, Verified
from vllm_spec_tools.planner.models import memory_of
from vllm_spec_tools.planner.recommending import choose, verdict
from vllm_spec_tools.planner.results import Results, plugin_yaml
from vllm_spec_tools.planner.traffic import workloads_of
from vllm_spec_tools.progress import shown_stages
from vllm_spec_tools.serving import runs_on_cpu

# Of the verification.
_ROUNDS = 3


@dataclass(frozen=True)
class Wanted:
    """What is to be planned.

    Attributes:
        natives: vLLM's own drafters, speculative configs without a number of tokens.
    """

    model: str
    draft: str | None
    heads: Heads | None
    tokens: int
    sizes: Sizes
    is_verified: bool = True
    enforce_eager: bool = False
    eagle3: str | None = None
    natives: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def make_plan(
    wanted: Wanted,
    prompts: Sequence[Request],
    provenance: Mapping[str, Any],
    folder: Path,
    noise_budget: float,
    console: Console,
) -> Results:
    """Measures, predicts, verifies and recommends.

    Args:
        noise_budget: seconds of waiting for a quiet machine and of repeating, half of it for the final run.

    Raises:
        UserError: two engines do not fit into memory, one did not start, or ended.
        UserError: the jobs were too short.
    """
    workloads, sizes = workloads_of(prompts), wanted.sizes
    machine = NoiseGate(noise_budget / 2)
    verifying_sizes = replace(sizes, rounds=_ROUNDS)
    has_predictions = any(prompt.prediction for prompt in prompts)
    engines = chain_engines(
        wanted.draft,
        wanted.heads,
        wanted.tokens,
        eagle3=wanted.eagle3,
        natives=wanted.natives,
        has_predictions=has_predictions,
    )
    likely = [*engines, *([tree_engine(wanted.heads, 1)] if wanted.heads is not None else [])]
    share = _memory_share(wanted, likely)
    total = sum(measuring.num_runs(engine, len(workloads), sizes) for engine in likely)
    total += measuring.num_verification_runs(verifying_sizes) if wanted.is_verified else 0
    remarks: list[str] = []

    def arguments(plan: ArmPlan) -> dict[str, Any]:
        # A prompt that comes twice is a second one.
        options = {**wanted.options, "enable_prefix_caching": False}
        return engine_arguments(plan, wanted.model, sizes.seed, wanted.enforce_eager, share, options)

    environment, alone = arm_environment(wanted.model, wanted.options), sizes.one_at_a_time
    with (
        shown_stages(total, console) as stages,
        contextlib.closing(Engines(arguments, environment, folder, stages.begin, one_at_a_time=alone)) as running,
    ):
        running.add({NONE: ArmPlan(None)})

        def beside_none(name: str, text: str) -> Callable[[str], Arm]:
            """Starts an engine with that plugin.yaml: a function of its name, or `NONE`."""
            path = folder / f"{name}.yaml"
            path.write_text(text, encoding="utf-8")
            running.add({name: plan_file(path)})
            for one in () if alone else (NONE, name):
                running.of(one)
            stages.begin(name)
            return running.of

        def measure(engine: Engine) -> Measured:
            arm_of = beside_none(engine.name, yaml.safe_dump(engine.sections, allow_unicode=True))
            found = measuring.measure(engine, arm_of, prompts, sizes, machine, stages.on_run)
            running.close(engine.name)
            return found

        measured = [measure(engine) for engine in engines]
        if wanted.heads is not None:
            try:
                size = tree_size(wanted.heads.config, measured[-1], workloads, sizes.levels, wanted.tokens)
            except NoTreeError as error:
                remarks.append(str(error))
            else:
                measured.append(measure(tree_engine(wanted.heads, size)))
        found = [one for part in measured for one in forecasts(part, workloads, sizes.levels)]
        choice = choose(found)
        verified: dict[int, Verified] = {}
        if wanted.is_verified and choice.tokens:
            arm_of = beside_none(RECOMMENDED, plugin_yaml(choice, None, provenance))
            gate = NoiseGate(noise_budget / 2)
            verified = measuring.verify(arm_of, prompts, verifying_sizes, gate, stages.on_run)
        facts = running.facts
    return Results(
        workloads,
        sizes.levels,
        tuple(measured),
        tuple(found),
        choice,
        verified,
        verdict(choice, verified),
        memory_of(wanted.model, wanted.draft, wanted.heads, facts, wanted.eagle3, wanted.natives),
        facts,
        tuple(sample.others for part in measured for sample in part.samples if sample.others is not None),
        tuple(remarks),
    )


def _memory_share(wanted: Wanted, likely: Sequence[Engine]) -> float | None:
    """Returns the share of each device's memory for each engine, see `check_memory`.

    Raises:
        UserError: no speculation and one of the engines do not fit.
    """
    plan = ArmPlan(None)
    own = engine_arguments(plan, wanted.model, wanted.sizes.seed, wanted.enforce_eager, options=wanted.options)
    share = None
    for engine in likely:
        drafts = ArmPlan(None, engine.sections).draft_models
        needs = {
            name: need_of(wanted.model, models, own, runs_on_cpu())
            for name, models in ((NONE, ()), (engine.name, drafts))
        }
        share = check_memory(needs, wanted.options, device_memory(), one_at_a_time=wanted.sizes.one_at_a_time, fewer="")
    return share
