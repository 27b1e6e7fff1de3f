"""Makes a plan from beginning to end: starts, measures and ends engines, at most two at once."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from vllm_spec_tools.bench.arms import Engines, memory_share
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments, plan_file
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import LoadRequest
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.planner import measuring
from vllm_spec_tools.planner.candidates import NONE, Engine, Heads, MeasuredCandidate, chain_engines, tree_engine
from vllm_spec_tools.planner.forecast import NoTreeError, forecasts, tree_size
from vllm_spec_tools.planner.measuring import RECOMMENDED, MeasurementSizes, Verified
from vllm_spec_tools.planner.models import memory_of
from vllm_spec_tools.planner.recommending import choose, verdict
from vllm_spec_tools.planner.results import Results, plugin_yaml
from vllm_spec_tools.planner.traffic import workloads_of
from vllm_spec_tools.progress import shown_runs

# Of the measurements that predict; the final comparison decides, and has its own.
_MEASURING_ROUNDS = 2


@dataclass(frozen=True)
class Wanted:
    """Models and options to plan for.

    Attributes:
        sizes: levels, seed, and the rounds of the final comparison.
        natives: vLLM's own drafters, speculative configs without a number of tokens.
    """

    model: str
    draft: str | None
    heads: Heads | None
    tokens: int
    sizes: MeasurementSizes
    enforce_eager: bool = False
    eagle3: str | None = None
    natives: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def make_plan(
    wanted: Wanted,
    prompts: Sequence[LoadRequest],
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
    workloads, sizes = workloads_of(prompts), replace(wanted.sizes, rounds=_MEASURING_ROUNDS)
    machine = NoiseGate(noise_budget / 2)
    engines = chain_engines(
        wanted.draft,
        wanted.heads,
        wanted.tokens,
        eagle3=wanted.eagle3,
        natives=wanted.natives,
        has_predictions=any(prompt.prediction for prompt in prompts),
        has_schemas=any(prompt.schema for prompt in prompts),
    )
    likely = [*engines, *([tree_engine(wanted.heads, 1)] if wanted.heads is not None else [])]
    for engine in likely:
        plans = {NONE: ArmPlan(None), engine.name: ArmPlan(None, engine.sections)}
        share = memory_share(plans, wanted.model, wanted.options, one_at_a_time=sizes.one_at_a_time, fewer="")
    total = sum(measuring.num_runs(engine, len(workloads), sizes) for engine in likely)
    total += measuring.num_verification_runs(wanted.sizes)
    remarks: list[str] = []

    # A prompt that comes twice is a second one.
    options = {**wanted.options, "enable_prefix_caching": False}
    arguments = functools.partial(
        engine_arguments,
        target=wanted.model,
        seed=sizes.seed,
        enforce_eager=wanted.enforce_eager,
        memory=share,
        options=options,
    )
    environment, alone = arm_environment(wanted.model, wanted.options), sizes.one_at_a_time
    with (
        shown_runs(total, console) as runs,
        contextlib.closing(Engines(arguments, environment, folder, runs.begin, one_at_a_time=alone)) as running,
    ):
        running.add({NONE: ArmPlan(None)})

        def beside_none(name: str, text: str) -> Callable[[str], EngineProcess]:
            """Starts an engine with that plugin.yaml: a function of its name, or `NONE`."""
            path = folder / f"{name}.yaml"
            path.write_text(text, encoding="utf-8")
            running.add({name: plan_file(path)})
            for one in () if alone else (NONE, name):
                running.of(one)
            runs.begin(name)
            return running.of

        def measure(engine: Engine) -> MeasuredCandidate:
            arm_of = beside_none(engine.name, yaml.safe_dump(engine.sections, allow_unicode=True))
            found = measuring.measure(engine, arm_of, prompts, sizes, machine, runs.on_run)
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
        if choice.tokens:
            arm_of = beside_none(RECOMMENDED, plugin_yaml(choice, None, provenance))
            gate = NoiseGate(noise_budget / 2)
            verified = measuring.verify(arm_of, prompts, wanted.sizes, gate, runs.on_run)
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
