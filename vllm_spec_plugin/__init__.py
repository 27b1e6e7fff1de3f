"""Exact, measured speculative decoding for an unmodified vLLM."""

import os
from typing import Any

from vllm_spec_plugin.version import __version__

__all__ = ["__version__", "speculative_config"]


def speculative_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Builds the `speculative_config` of `vllm.LLM` that uses a plugin.yaml; its path does the same.

    Args:
        path: the plugin.yaml.

    Raises:
        ConfigError: the file has a mistake, or the installed vLLM is not supported; the message says what is.
    """
    from vllm_spec_plugin.config.settings import KEY, settings_for
    from vllm_spec_plugin.register.plugin import register
    from vllm_spec_plugin.register.switch import reason_off
    from vllm_spec_plugin.register.version import check_vllm

    register()
    if reason_off():
        return {KEY: os.fspath(path)}
    check_vllm()
    return settings_for(path)
