"""Builds the arguments of an engine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.register.modes import PATCHED_SAMPLER
from vllm_spec_tools.engines.serving import KV_SPACE, runs_on_cpu, serving_environment
from vllm_spec_tools.vllm_json import check_native


@dataclass(frozen=True)
class ArmPlan:
    """The engine of an arm."""

    speculative_config: str | dict[str, Any] | None
    settings: dict[str, Any] | None = None

    @property
    def draft_models(self) -> list[str]:
        """Folders or hub names of draft models and heads."""
        own = self.speculative_config if isinstance(self.speculative_config, dict) else {}
        proposer = (self.settings or {}).get("proposer", {})
        sections = (own, proposer, *proposer.get("proposers", ()), proposer.get("config", {}))
        return [section["model"] for section in sections if section.get("model")]


def plan_file(path: Path) -> ArmPlan:
    """Returns the engine of a plugin.yaml.

    Raises:
        ConfigError: it is not there, or has a mistake.
    """
    config = load_config(path)
    check_native(config, str(path))
    return ArmPlan(str(path.absolute()), config.model_dump(mode="json"))


def engine_arguments(
    plan: ArmPlan,
    target: str,
    seed: int,
    enforce_eager: bool,
    memory: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds the arguments of an arm's engine, see `arm.py`; on a CPU as `vllm-spec demo` serves.

    Args:
        memory: share of the device's memory for the engine; None is vLLM's default. A CPU's KV cache has a size of its
            own, see `serving.cpu_environment`.
        options: further keyword arguments of `vllm.LLM`, which win.
    """
    arguments: dict[str, Any] = {"model": target, "enforce_eager": enforce_eager, "seed": seed}
    if runs_on_cpu():
        arguments |= {"dtype": "float32", "max_model_len": -1}
        if isinstance(plan.speculative_config, dict):
            # Else vLLM's own speculation would sample from uninitialised memory, and accept few drafts.
            arguments["worker_extension_cls"] = PATCHED_SAMPLER
    if memory is not None:
        arguments["gpu_memory_utilization"] = memory
    arguments |= options or {}
    if plan.speculative_config is not None:
        arguments["speculative_config"] = plan.speculative_config
    return arguments


def arm_environment(target: str, options: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Returns the environment of an arm's process: that of a server, but all in one process."""
    environment = serving_environment(target)
    if KV_SPACE not in os.environ and not {"gpu_memory_utilization", "kv_cache_memory_bytes"}.isdisjoint(options or ()):
        environment.pop(KV_SPACE, None)  # it would win over the options
    return environment | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
        "TOKENIZERS_PARALLELISM": "false",
        # Each run begins cold.
        "VLLM_SPEC_MEMORY": os.environ.get("VLLM_SPEC_MEMORY", "0"),
    }
