"""Exact, measured speculative decoding for an unmodified vLLM."""

import os
from typing import Any

__version__ = "0.3.0.dev0"
__all__ = ["__version__", "speculative_config"]


def speculative_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Builds the `speculative_config` of `vllm.LLM` that uses a plugin.yaml; its path does the same.

    Args:
        path: the plugin.yaml.

    Raises:
        ConfigError: the file has a mistake, or the installed vLLM is not supported; the message says what is.
    """
    from vllm_spec_plugin.config.settings import KEY, settings_for
    from vllm_spec_plugin.register.plugin import reason_off, register
    from vllm_spec_plugin.register.version import check_vllm

    register()
    if reason_off():
        return {KEY: os.fspath(path)}
    check_vllm()
    return settings_for(path)
