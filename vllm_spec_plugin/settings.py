"""How a plugin.yaml travels through vLLM: as one entry of a dict that vLLM passes along."""

import os
from typing import Any

KEY = "vllm_spec_plugin"


def settings_for(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a plugin.yaml into what vLLM's `speculative_config` takes.

    Raises:
        ConfigError: the file has a mistake; the message says which and where.
    """
    from vllm_spec_plugin.config import load_config

    config = load_config(path)
    return {KEY: {"config": config.model_dump(mode="json"), "source": os.fspath(path)}}
