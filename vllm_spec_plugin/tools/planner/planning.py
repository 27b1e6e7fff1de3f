"""The plan from beginning to end: engines start, are measured, and end; never more than two at once."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments, plan_file
from vllm_spec_plugin.tools.bench.load.records import Request
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.planner import measuring, verifying
from vllm_spec_plugin.tools.planner.candidates import Engine, Heads, chain_engines, tree_engine
from vllm_spec_plugin.tools.planner.forecast import forecasts
from vllm_spec_plugin.tools.planner.measuring import Sizes
from vllm_spec_plugin.tools.planner.memory import memory_of
from vllm_spec_plugin.tools.planner.plugin_yaml import plugin_yaml
from vllm_spec_plugin.tools.planner.recommending import choose, verdict
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.samples import NONE, Measured
from vllm_spec_plugin.tools.planner.traffic import workloads_of
from vllm_spec_plugin.tools.planner.tree_size import NoTreeError, tree_size
from vllm_spec_plugin.tools.planner.verifying import RECOMMENDED, Verified
from vllm_spec_plugin.tools.progress import Stages, shown_stages

# Of the device's memory, for each of two engines.
_MEMORY = 0.4
# Of the verification.
_ROUNDS = 3


@dataclass(frozen=True)
class Wanted:
    """What is to be planned.

    Attributes:
        model: that is served, a folder's absolute path or a hub name.
        draft: a draft model, likewise; None is without.
        heads: Medusa heads; None is without.
        tokens: the longest draft.
        sizes: how much is measured.
        is_verified: whether the best is run against no speculation in the end.
        enforce_eager: do not compile the models.
        eagle3: an EAGLE-3 head, like `draft`.
    """

    model: str
    draft: str | None
    heads: Heads | None
    tokens: int
    sizes: Sizes
    is_verified: bool = True
    enforce_eager: bool = False
    eagle3: str | None = None


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
        wanted: what.
        prompts: the traffic.
        provenance: what `report.provenance.provenance` gives, with the model served.
        folder: where files may be written that the engines can read.
        noise_budget: seconds of waiting for a quiet machine and of repeating, half of it for the final run.
        console: where progress is shown.

    Raises:
        UserError: an engine did not start, or ended.
        UserError: the jobs were too short.
    """
    workloads, sizes = workloads_of(prompts), wanted.sizes
    machine = NoiseGate(noise_budget / 2)
    verifying_sizes = replace(sizes, rounds=_ROUNDS)
    has_predictions = any(prompt.prediction for prompt in prompts)
    engines = chain_engines(
        wanted.draft, wanted.heads, wanted.tokens, eagle3=wanted.eagle3, has_predictions=has_predictions
    )
    likely = [*engines, *([tree_engine(wanted.heads, 1)] if wanted.heads is not None else [])]
    total = sum(measuring.num_runs(engine, len(workloads), sizes) for engine in likely)
    total += verifying.num_runs(verifying_sizes) if wanted.is_verified else 0
    remarks: list[str] = []
    with shown_stages(total, console) as stages, _Engines(wanted, folder, stages) as running:

        def measure(engine: Engine) -> Measured:
            with running.beside_none(engine.name, _written(engine.sections, running.new_file())) as arms:
                return measuring.measure(engine, arms, prompts, sizes, machine, stages.on_run)

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
            path = running.new_file()
            path.write_text(plugin_yaml(choice, None, provenance), encoding="utf-8")
            with running.beside_none(RECOMMENDED, path) as arms:
                verified = verifying.verify(arms, prompts, verifying_sizes, NoiseGate(noise_budget / 2), stages.on_run)
        facts = running.facts
    return Results(
        workloads,
        sizes.levels,
        tuple(measured),
        tuple(found),
        choice,
        verified,
        verdict(choice, verified),
        memory_of(wanted.model, wanted.draft, wanted.heads, facts, wanted.eagle3),
        facts,
        tuple(sample.others for part in measured for sample in part.samples if sample.others is not None),
        tuple(remarks),
    )


class _Engines:
    """Starts engines: the one without speculation once, when it is first needed, and one beside it at a time.

    Attributes:
        facts: what each engine chose by itself.
    """

    def __init__(self, wanted: Wanted, folder: Path, stages: Stages) -> None:
        self._wanted, self._folder, self._stages = wanted, folder, stages
        self._stack = contextlib.ExitStack()
        self._none: Arm | None = None
        self._num_files = self._num_arms = 0
        self.facts: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "_Engines":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def new_file(self) -> Path:
        """A name for another file."""
        self._num_files += 1
        return self._folder / f"plugin{self._num_files}.yaml"

    @contextlib.contextmanager
    def beside_none(self, name: str, config: Path) -> Iterator[dict[str, Arm]]:
        """While it lasts an engine with that plugin.yaml runs: it and `NONE`, by name.

        Raises:
            UserError: one did not start.
        """
        if self._none is None:
            self._stages.begin("the engine without speculation starts (about a minute)")
            self._none = self._stack.enter_context(self._arm(NONE, ArmPlan(None)))
        self._stages.begin(f"the engine of {name} starts (about a minute)")
        with self._arm(name, plan_file(config)) as arm:
            self._stages.begin(name)
            self.facts[NONE], self.facts[name] = self._none.facts(), arm.facts()
            yield {NONE: self._none, name: arm}

    def _arm(self, name: str, plan: ArmPlan) -> Arm:
        wanted = self._wanted
        arguments = engine_arguments(plan, wanted.model, wanted.sizes.seed, wanted.enforce_eager, _MEMORY)
        # A prompt that comes twice is a second one.
        arguments["enable_prefix_caching"] = False
        self._num_arms += 1
        return Arm(name, arguments, arm_environment(wanted.model), self._folder / f"engine{self._num_arms}")


def _written(sections: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(sections, allow_unicode=True), encoding="utf-8")
    return path
