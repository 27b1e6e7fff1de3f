"""Runs all engines of a certification, side by side where cores allow, and gathers their checks."""

import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments
from vllm_spec_tools.certify.baseline import Baseline, BaselineSizes, Say, run_baseline
from vllm_spec_tools.certify.baseline_file import read_baseline, write_baseline
from vllm_spec_tools.certify.checks import (
    check_coupled,
    check_greedy,
    check_json,
    check_samples,
    check_seeds,
    sampling_check,
)
from vllm_spec_tools.certify.results import Certificate, Check
from vllm_spec_tools.certify.settings import sampling_settings
from vllm_spec_tools.certify.subject import AS_GIVEN, FORCED, PLAIN, TIGHT, plugin_subject, stock_subject
from vllm_spec_tools.certify.target_probabilities import RAW_LOGITS
from vllm_spec_tools.engines.engine_child import EngineError, StartError
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.engines.serving import runs_on_cpu

_T = TypeVar("_T")
# Of the time for samples, for those of the file as it is where random lengths are tested as well.
_SHARE = 0.5
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
        baseline: file of the outputs without speculation, which is written if it does not exist; None keeps none.
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
    baseline: Path | None = None


def certify(plan: Certification, folder: Path, provenance: dict[str, Any], say: Say) -> Certificate:
    """Runs all checks.

    Raises:
        ConfigError: the plugin.yaml has mistakes.
        UserError: an engine did not start, or ended; the baseline's file is another one's.
    """
    start = time.monotonic()
    subject = stock_subject(plan.config) if isinstance(plan.config, str) else plugin_subject(plan.config, folder)
    is_coupled = subject.seeds == "drafts"
    sizes = replace(plan.sizes, by_vllm=subject.by_vllm, structured=subject.uses_grammar).of_coupled(is_coupled)
    num_settings = len(sampling_settings(range(4), sizes.quick, sizes.by_vllm)) if sizes.samples else 0
    threshold = threshold_of(plan.false_alarm, num_settings, len(subject.engines.keys() - {TIGHT}))
    if is_coupled:
        threshold = plan.false_alarm / len(subject.engines)

    made_with = _made_with(plan, sizes, provenance)
    kept = read_baseline(plan.baseline, made_with) if plan.baseline else None
    runner = _Engines(plan, folder)
    with runner, ThreadPoolExecutor(len(runner.lanes)) as pool:
        baseline = pool.submit(lambda: kept or _new_baseline(runner, plan, sizes, made_with, say))

        def checks(label: str, max_accepted: int, engine: EngineProcess) -> Iterator[Check]:
            facts = engine.facts()
            if is_coupled and facts["runner"] != "V2":
                raise UserError(f"{label}: got vLLM's V1 runner, see its log; allowed: set VLLM_USE_V2_MODEL_RUNNER=0")
            known = baseline.result().predicting() if subject.uses_predictions else baseline.result()
            say(f"{label}: greedy outputs")
            if label == TIGHT:
                yield check_greedy(engine, known, "preemption and chunked prompts", label, tight=True)
                if is_coupled:
                    yield check_coupled(engine, known, label, threshold, tight=True)
                return
            yield check_greedy(engine, known, "greedy", label)
            say(f"{label}: JSON schema")
            has_seeds = subject.seeds != "neither"
            yield check_json(engine, known, label, uses_grammar=subject.uses_grammar, has_seeds=has_seeds)
            if subject.seeds != "neither":
                say(f"{label}: seeds")
            if is_coupled:
                yield check_coupled(engine, known, label, threshold)
            elif subject.seeds == "batch":
                yield check_seeds(engine, known, label)
            is_second = label == AS_GIVEN and FORCED in subject.engines
            own = replace(sizes, seconds=sizes.seconds * _SHARE) if is_second else sizes
            yield from check_samples(engine, known, label, own, max_accepted, threshold, say)

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
    return Certificate(
        tuple(found),
        plan.false_alarm,
        threshold,
        known.tolerance,
        seconds,
        sizes.seconds / 60,
        known.facts,
        provenance,
        str(plan.baseline) if kept else "",
    )


def _made_with(plan: Certification, sizes: BaselineSizes, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a baseline depends on."""
    return {
        "models": plan.model,
        "engine options": {**plan.options, "enforce_eager": plan.enforce_eager},
        "prompts": plan.prompts,
        "sizes": sizes,
        "tolerance": plan.tolerance,
        "versions": provenance.get("versions"),
    }


def _new_baseline(
    runner: "_Engines", plan: Certification, sizes: BaselineSizes, made_with: dict[str, Any], say: Say
) -> Baseline:
    found = runner.use(PLAIN, RAW_LOGITS, lambda e: run_baseline(e, plan.prompts, sizes, plan.tolerance, say))
    if plan.baseline:
        write_baseline(plan.baseline, made_with, found)
    return found


def threshold_of(false_alarm: float, num_settings: int, num_engines: int) -> float:
    """Returns the bound of each p-value so that false alarms of all together are bounded.

    Args:
        false_alarm: bound of the probability that any p-value of exact outputs is below.
        num_settings: settings that are sampled.
        num_engines: engines with speculation that are sampled, with two p-values per setting; the one without has one.
    """
    return false_alarm / max(1, num_settings * (2 * num_engines + 1))


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
