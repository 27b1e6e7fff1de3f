"""Describes what a server's costs and acceptance depend on, and finds vLLM's cache folder."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.installed import installed_version

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import VllmConfig


def identity_of(vllm_config: "VllmConfig", file: Mapping[str, Any]) -> str:
    """Describes models, drafter, device, versions and configuration, as JSON; equal for servers that are alike.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        file: the plugin's configuration, as JSON.
    """
    from vllm.platforms import current_platform

    model, parallel, speculative = vllm_config.model_config, vllm_config.parallel_config, vllm_config.speculative_config
    draft = getattr(speculative, "draft_model_config", None)
    described = {
        "vllm": installed_version(),
        "device": [current_platform.get_device_name(), platform.machine(), len(os.sched_getaffinity(0))],
        "ranks": [parallel.tensor_parallel_size, parallel.pipeline_parallel_size],
        "models": [
            [str(one.model), str(one.revision), str(one.dtype), str(one.quantization)] for one in (model, draft) if one
        ],
        "eager": bool(model.enforce_eager),
        "v2": bool(vllm_config.use_v2_model_runner),
        "asynchronous": bool(vllm_config.scheduler_config.async_scheduling),
        "file": file,
    }
    return json.dumps(described, sort_keys=True)


def cache_folder() -> Path:
    """Returns the plugin's folder in vLLM's cache folder (`VLLM_CACHE_ROOT`)."""
    from vllm import envs

    return Path(envs.VLLM_CACHE_ROOT).expanduser() / "vllm_spec_plugin"
