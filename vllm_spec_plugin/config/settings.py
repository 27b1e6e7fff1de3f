"""Carries a plugin.yaml through vLLM, as one entry of a dict that vLLM passes on to its processes."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig

KEY = "vllm_spec_plugin"


def settings_for(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a plugin.yaml into a value for vLLM's `speculative_config`.

    Raises:
        ConfigError: the file has mistakes; the message names each key.
    """
    from vllm_spec_plugin.config import load_config

    return settings_of(load_config(path), os.fspath(path))


def settings_of(config: "PluginConfig", source: str) -> dict[str, Any]:
    """Builds the same value from a configuration that was read from the file `source`."""
    return {KEY: {"config": config.model_dump(mode="json"), "source": source}}


def config_in(settings: object) -> "PluginConfig":
    """Reads the configuration from a dict made by `settings_of`, in any process.

    Raises:
        ConfigError: it names a proposer of a distribution that is not installed for this process.
    """
    from vllm_spec_plugin.config import parse_config

    assert isinstance(settings, Mapping)
    return parse_config(settings[KEY]["config"], settings[KEY]["source"])
