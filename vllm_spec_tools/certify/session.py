"""Runs all engines of a certification, side by side where cores allow, and gathers their checks."""

import json
import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from vllm_spec_plugin.config import PluginConfig, load_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments
from vllm_spec_tools.certify.baseline import BaselineSizes, Say, run_baseline
from vllm_spec_tools.certify.checks import check_greedy, check_json, check_samples, check_seeds, sampling_check
from vllm_spec_tools.certify.jobs import EngineProcess
from vllm_spec_tools.certify.results import Certificate, Check
from vllm_spec_tools.certify.settings import sampling_settings
from vllm_spec_tools.certify.target_probabilities import RAW_LOGITS
from vllm_spec_tools.engine_child import EngineError, StartError
from vllm_spec_tools.serving import runs_on_cpu

_T = TypeVar("_T")
PLAIN, FIXED, AS_GIVEN, TIGHT = "no speculation", "fixed draft length", "as configured", "few KV blocks"
_FIXED_TOKENS = 4
_LONGEST = 1024
# Prompts are computed in chunks, and there is too little KV cache for all that run together.
_TIGHT = {"max_num_seqs": 24, "max_num_batched_tokens": 128, "block_size": 32, "num_gpu_blocks_override": 44}
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


@dataclass(frozen=True)
class Certification:
    """Configuration, models and options to certify.

    Attributes:
        config: path of the plugin.yaml, or vLLM's speculative config in JSON.
        options: further keyword arguments of `vllm.LLM`, which win over the ones chosen here.
    """

    model: str
    config: Path | str
    context: int | None
    options: Mapping[str, Any]
    prompts: Sequence[str] | None
    sizes: BaselineSizes
    false_alarm: float = 1e-3
    tolerance: float | None = None
    enforce_eager: bool = False


def certify(plan: Certification, folder: Path, provenance: dict[str, Any], say: Say) -> Certificate:
    """Runs all checks.

    Raises:
        ConfigError: the plugin.yaml has mistakes.
        UserError: an engine did not start, or ended.
    """
    start = time.monotonic()
    subject = _stock(plan.config) if isinstance(plan.config, str) else _plugin(plan.config, folder)
    sizes = replace(plan.sizes, by_vllm=subject.by_vllm)
    num_settings = len(sampling_settings(range(4), sizes.quick, sizes.by_vllm))
    threshold = plan.false_alarm / (num_settings * (2 * (len(subject.engines) - 1) + 1))
    deadline = start + plan.sizes.seconds

    runner = _Engines(plan, folder)
    with runner, ThreadPoolExecutor(len(runner.lanes)) as pool:
        baseline = pool.submit(
            runner.use, PLAIN, RAW_LOGITS, lambda e: run_baseline(e, plan.prompts, sizes, plan.tolerance, say)
        )

        def checks(label: str, max_accepted: int, engine: EngineProcess) -> Iterator[Check]:
            engine.facts()
            known = baseline.result().predicting() if subject.uses_predictions else baseline.result()
            say(f"{label}: greedy outputs")
            if label == TIGHT:
                yield check_greedy(engine, known, "preemption and chunked prompts", label, tight=True)
                return
            yield check_greedy(engine, known, "greedy", label)
            say(f"{label}: JSON schema")
            yield check_json(engine, known, label)
            # vLLM's own outputs of seeded requests depend on their drafts.
            if not sizes.by_vllm:
                say(f"{label}: seeds")
                yield check_seeds(engine, known, label)
            yield from check_samples(engine, known, label, sizes, max_accepted, threshold, deadline, say)

        def checked(label: str) -> list[Check]:
            config, max_accepted = subject.engines[label]
            arguments = {"speculative_config": config} | (_TIGHT if label == TIGHT else {})
            return runner.use(label, arguments, lambda engine: list(checks(label, max_accepted, engine)))

        futures: list[Future[list[Check]]] = [pool.submit(checked, label) for label in subject.engines]
        all_futures: list[Future[Any]] = [baseline, *futures]
        try:
            done, _ = wait(all_futures, return_when=FIRST_EXCEPTION)
            for future in all_futures:
                if future in done:
                    future.result()
        except BaseException:
            # Else the pool would wait for what the others do.
            runner.stop()
            raise
        known = baseline.result()
        found = [sampling_check(name, PLAIN, samples, known, threshold) for name, samples in known.control.items()]
        found += [check for future in futures for check in future.result()]
    seconds = time.monotonic() - start
    return Certificate(tuple(found), plan.false_alarm, threshold, known.tolerance, seconds, known.facts, provenance)


class _Subject(NamedTuple):
    """Engines and drafts to certify.

    Attributes:
        engines: by label, vLLM's speculative config as JSON or the path of a plugin.yaml, and the accepted length at
            which a step has accepted its whole draft.
        uses_predictions: whether drafts are made from predicted outputs.
        by_vllm: whether vLLM's own sampler verifies.
    """

    engines: dict[str, tuple[str, int]]
    uses_predictions: bool
    by_vllm: bool


def _stock(text: str) -> _Subject:
    tokens = json.loads(text)["num_speculative_tokens"]
    return _Subject({AS_GIVEN: (text, tokens), TIGHT: (text, 0)}, False, True)


def _plugin(path: Path, folder: Path) -> _Subject:
    config, fixed = load_config(path), folder / "fixed.yaml"
    fixed.write_text(yaml.safe_dump(fixed_length(config), sort_keys=False))
    engines = {FIXED: (str(fixed), max_accepted_of(load_config(fixed))), TIGHT: (str(fixed), 0)}
    if config.draft_length.policy != "fixed":
        engines[AS_GIVEN] = (str(path.absolute()), max_accepted_of(config))
    uses_predictions = any(proposer.uses_predictions for proposer in config.proposers)
    return _Subject(engines, uses_predictions, config.is_native)


def fixed_length(config: PluginConfig) -> dict[str, Any]:
    """The same proposers with a fixed draft length."""
    data = config.model_dump(mode="json", include={"proposer", "verification"})
    max_tokens = config.draft_length.tokens
    tokens = max_tokens if config.drafts_trees else min(max_tokens, _FIXED_TOKENS)
    return data | {"draft_length": {"policy": "fixed", "tokens": tokens}}


def max_accepted_of(config: PluginConfig) -> int:
    """The accepted length at which a step has accepted its whole draft.

    Trees whose depth is not known beforehand count as chains of all their tokens.
    """
    max_tokens = config.draft_length.tokens
    trees = [proposer.fixed_tree for proposer in config.proposers]
    return max(max_tokens if tree is None else tree.depth for tree in trees)


class _Engines:
    """Starts engines on lanes of cores, and ends them all with the context."""

    def __init__(self, plan: Certification, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self.lanes = _lanes(plan.options)
        self._free: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        for lane in self.lanes:
            self._free.put(lane)
        self._running: list[EngineProcess] = []
        self._is_over = False

    def use(self, label: str, arguments: Mapping[str, Any], work: Callable[[EngineProcess], _T]) -> _T:
        """Starts an engine, does the work with it, and ends it."""
        lane = self._free.get()
        engine = EngineProcess(
            self._arguments(lane) | dict(arguments), self._folder / label.replace(" ", "_"), self._environment(lane)
        )
        self._running.append(engine)
        try:
            if self._is_over:
                raise UserError("stopped")
            return work(engine)
        except StartError as error:
            raise UserError(f"the engine ({label}) did not start: {error}") from None
        except EngineError as error:
            raise UserError(f"{label}: {error}") from None
        finally:
            engine.stop()
            self._free.put(lane)

    def stop(self) -> None:
        """Ends all engines, and those to come."""
        self._is_over = True
        for engine in self._running:
            engine.stop()

    def __enter__(self) -> "_Engines":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _arguments(self, lane: list[int]) -> dict[str, Any]:
        plan = self._plan
        options: dict[str, Any] = {
            "max_model_len": min(plan.context or _LONGEST, _LONGEST),
            "enable_prefix_caching": True,
            # Else a model may write blanks for as long as it may write.
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        }
        if runs_on_cpu():
            options |= {"gpu_memory_utilization": 0.4, "block_size": 32}
            if len(self.lanes) > 1:
                options["cores"] = lane
        return engine_arguments(ArmPlan(None), plan.model, 0, plan.enforce_eager, options=options | dict(plan.options))

    def _environment(self, lane: list[int]) -> dict[str, str]:
        environment = arm_environment(self._plan.model, self._plan.options)
        if len(self.lanes) > 1:
            cores = ",".join(map(str, lane))
            environment |= {"OMP_NUM_THREADS": str(len(lane)), "VLLM_CPU_OMP_THREADS_BIND": cores}
        return environment


def _lanes(options: Mapping[str, Any]) -> list[list[int]]:
    """Cores of each engine that runs at the same time: two on a CPU with cores for both, else one."""
    cores = sorted(os.sched_getaffinity(0))
    is_parallel = any(int(options.get(name, 1)) > 1 for name in _PARALLEL)
    if not runs_on_cpu() or is_parallel or len(cores) < 2:
        return [cores]
    half = len(cores) // 2
    return [cores[:half], cores[half : 2 * half]]
