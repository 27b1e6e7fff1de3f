"""The plan from beginning to end: engines start, are measured, and end; never more than two at once."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from vllm_spec_plugin.compat.engine_args import device_memory
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments, plan_file
from vllm_spec_tools.bench.load.records import Request
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.memory import check_memory, need_of
from vllm_spec_tools.planner import measuring, verifying
from vllm_spec_tools.planner.candidates import Engine, Heads, chain_engines, tree_engine
from vllm_spec_tools.planner.forecast import forecasts
from vllm_spec_tools.planner.measuring import Sizes
from vllm_spec_tools.planner.memory import memory_of
from vllm_spec_tools.planner.plugin_yaml import plugin_yaml
from vllm_spec_tools.planner.recommending import choose, verdict
from vllm_spec_tools.planner.results import Results
from vllm_spec_tools.planner.samples import NONE, Measured
from vllm_spec_tools.planner.traffic import workloads_of
from vllm_spec_tools.planner.tree_size import NoTreeError, tree_size
from vllm_spec_tools.planner.verifying import RECOMMENDED, Verified
from vllm_spec_tools.progress import Stages, shown_stages
from vllm_spec_tools.serving import runs_on_cpu

# Of the verification.
_ROUNDS = 3


@dataclass(frozen=True)
class Wanted:
    """What is to be planned.

    Attributes:
        model: that is served, a folder's absolute path or a hub name.
        draft: a draft model, likewise; None is without.
        heads: Medusa heads; None is without.
        is_verified: whether the best is run against no speculation in the end.
        enforce_eager: do not compile the models.
        eagle3: an EAGLE-3 head, like `draft`.
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
        folder: where files may be written that the engines can read.
        noise_budget: seconds of waiting for a quiet machine and of repeating, half of it for the final run.
        console: where progress is shown.

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
    total += verifying.num_runs(verifying_sizes) if wanted.is_verified else 0
    remarks: list[str] = []
    with shown_stages(total, console) as stages, _Engines(wanted, share, folder, stages) as running:

        def measure(engine: Engine) -> Measured:
            with running.beside_none(engine.name, _written(engine.sections, running.new_file())) as arm_of:
                return measuring.measure(engine, arm_of, prompts, sizes, machine, stages.on_run)

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
            with running.beside_none(RECOMMENDED, path) as arm_of:
                verified = verifying.verify(
                    arm_of, prompts, verifying_sizes, NoiseGate(noise_budget / 2), stages.on_run
                )
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


class _Engines:
    """Starts engines: the one without speculation once, when it is first needed, and one beside it at a time.

    One at a time, each starts when it is asked for, after the one before ended.

    Attributes:
        facts: what each engine chose by itself.
    """

    def __init__(self, wanted: Wanted, share: float | None, folder: Path, stages: Stages) -> None:
        self._wanted, self._share, self._folder, self._stages = wanted, share, folder, stages
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
    def beside_none(self, name: str, config: Path) -> Iterator[Callable[[str], Arm]]:
        """While it lasts an engine with that plugin.yaml runs: yields a function of its name, or `NONE`.

        Raises:
            UserError: one did not start.
        """
        if self._wanted.sizes.one_at_a_time:
            plans, running = {NONE: ArmPlan(None), name: plan_file(config)}, dict[str, Arm]()
            with contextlib.ExitStack() as stack:

                def arm_of(wanted: str) -> Arm:
                    if wanted not in running:
                        stack.close()
                        running.clear()
                        self._stages.begin(f"the engine of {wanted} starts (about a minute)")
                        running[wanted] = stack.enter_context(self._arm(wanted, plans[wanted]))
                        self.facts[wanted] = running[wanted].facts()
                    return running[wanted]

                yield arm_of
            return
        if self._none is None:
            self._stages.begin("the engine without speculation starts (about a minute)")
            self._none = self._stack.enter_context(self._arm(NONE, ArmPlan(None)))
        self._stages.begin(f"the engine of {name} starts (about a minute)")
        with self._arm(name, plan_file(config)) as arm:
            self._stages.begin(name)
            self.facts[NONE], self.facts[name] = self._none.facts(), arm.facts()
            yield {NONE: self._none, name: arm}.__getitem__

    def _arm(self, name: str, plan: ArmPlan) -> Arm:
        wanted = self._wanted
        # A prompt that comes twice is a second one.
        options = {**wanted.options, "enable_prefix_caching": False}
        arguments = engine_arguments(plan, wanted.model, wanted.sizes.seed, wanted.enforce_eager, self._share, options)
        self._num_arms += 1
        return Arm(
            name, arguments, arm_environment(wanted.model, wanted.options), self._folder / f"engine{self._num_arms}"
        )


def _written(sections: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(sections, allow_unicode=True), encoding="utf-8")
    return path
