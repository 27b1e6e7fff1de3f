"""Exact, measured speculative decoding for an unmodified vLLM."""

import os
from typing import Any

__version__ = "0.3.0.dev0"
__all__ = ["__version__", "speculative_config"]


def speculative_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `vllm.LLM(model, speculative_config=...)` takes to use a plugin.yaml.

    Args:
        path: the plugin.yaml.

    Raises:
        ConfigError: the file has a mistake; the message names file, key, value and what is allowed.
        UnsupportedVersionError: the installed vLLM is not supported.
        RuntimeError: the environment variable VLLM_SPEC_PLUGIN switches the plugin off.
    """
    from vllm_spec_plugin.config.settings import settings_for
    from vllm_spec_plugin.register.plugin import SWITCH, register, switched_off
    from vllm_spec_plugin.register.version import check_vllm_version

    if switched_off():
        raise RuntimeError(
            f"{SWITCH}={os.environ[SWITCH]} disables the plugin; unset it, or start without a plugin.yaml"
        )
    register()
    check_vllm_version()
    return settings_for(path)
