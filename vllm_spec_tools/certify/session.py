"""Runs the engines of a certification, one after the other, and gathers their checks."""

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments
from vllm_spec_tools.certify.baseline import Baseline, BaselineSizes, Say, read_baseline, run_baseline
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
from vllm_spec_tools.certify.subject import AS_GIVEN, FORCED, PLAIN, TIGHT, Subject, plugin_subject, stock_subject
from vllm_spec_tools.certify.target_probabilities import RAW_LOGITS
from vllm_spec_tools.engines.engine_child import EngineError, StartError
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.engines.serving import runs_on_cpu

# Of the time for samples, for those of the file as it is where random lengths are tested as well.
_SHARE = 0.5
_LONGEST = 1024
# Prompts are computed in chunks, and there is too little KV cache for all that run together.
_TIGHT = {"max_num_seqs": 24, "max_num_batched_tokens": 128, "block_size": 32, "num_gpu_blocks_override": 44}


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

    def arguments(self) -> dict[str, Any]:
        """The arguments of every engine."""
        options: dict[str, Any] = {
            "max_model_len": min(self.context or _LONGEST, _LONGEST),
            "enable_prefix_caching": True,
            # Else a model may write blanks for as long as it may write.
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        }
        if runs_on_cpu():
            options |= {"gpu_memory_utilization": 0.4, "block_size": 32}
        options |= self.options
        return engine_arguments(ArmPlan(None), self.model, 0, self.enforce_eager, options=options)


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
    made_with = {
        "models": plan.model,
        "engine options": {**plan.options, "enforce_eager": plan.enforce_eager},
        "prompts": plan.prompts,
        "sizes": sizes,
        "tolerance": plan.tolerance,
        "versions": provenance.get("versions"),
    }
    kept = read_baseline(plan.baseline, made_with) if plan.baseline else None
    baseline = kept
    if baseline is None:
        with _engine(plan, folder, PLAIN, RAW_LOGITS) as engine:
            baseline = run_baseline(engine, plan.prompts, sizes, plan.tolerance, say)
        if plan.baseline:
            plan.baseline.write_bytes(pickle.dumps((made_with, baseline)))
    found = [sampling_check(name, PLAIN, samples, baseline, threshold) for name, samples in baseline.control.items()]
    known = baseline.predicting() if subject.uses_predictions else baseline
    for label, (config, max_accepted) in subject.engines.items():
        with _engine(
            plan, folder, label, {"speculative_config": config} | (_TIGHT if label == TIGHT else {})
        ) as engine:
            found += _checks(subject, label, engine, known, sizes, max_accepted, threshold, say)
    return Certificate(
        tuple(found),
        plan.false_alarm,
        threshold,
        baseline.tolerance,
        time.monotonic() - start,
        sizes.seconds / 60,
        baseline.facts,
        provenance,
        str(plan.baseline) if kept else "",
    )


def _checks(
    subject: Subject,
    label: str,
    engine: EngineProcess,
    known: Baseline,
    sizes: BaselineSizes,
    max_accepted: int,
    threshold: float,
    say: Callable[[str], None],
) -> Iterator[Check]:
    """Yields the checks of one engine with speculation."""
    is_coupled = subject.seeds == "drafts"
    if is_coupled and engine.facts()["runner"] != "V2":
        raise UserError(f"{label}: got vLLM's V1 runner, see its log; allowed: set VLLM_USE_V2_MODEL_RUNNER=0")
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
    if has_seeds:
        say(f"{label}: seeds")
    if is_coupled:
        yield check_coupled(engine, known, label, threshold)
    elif has_seeds:
        yield check_seeds(engine, known, label)
    is_second = label == AS_GIVEN and FORCED in subject.engines
    own = replace(sizes, seconds=sizes.seconds * _SHARE) if is_second else sizes
    yield from check_samples(engine, known, label, own, max_accepted, threshold, say)


def threshold_of(false_alarm: float, num_settings: int, num_engines: int) -> float:
    """Returns the bound of each p-value so that false alarms of all together are bounded.

    Args:
        false_alarm: bound of the probability that any p-value of exact outputs is below.
        num_settings: settings that are sampled.
        num_engines: engines with speculation that are sampled, with two p-values per setting; the one without has one.
    """
    return false_alarm / max(1, num_settings * (2 * num_engines + 1))


@contextlib.contextmanager
def _engine(plan: Certification, folder: Path, label: str, arguments: Mapping[str, Any]) -> Iterator[EngineProcess]:
    """Starts an engine, and ends it with the block; its errors are those of the user's input."""
    environment = arm_environment(plan.model, plan.options)
    engine = EngineProcess(plan.arguments() | dict(arguments), folder / label.replace(" ", "_"), environment)
    try:
        yield engine
    except StartError as error:
        raise UserError(f"the engine ({label}) did not start: {error}") from None
    except EngineError as error:
        raise UserError(f"{label}: {error}") from None
    finally:
        engine.stop()
