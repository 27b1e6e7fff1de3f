"""How a plugin.yaml travels through vLLM: as one entry of a dict that vLLM passes along."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig

KEY = "vllm_spec_plugin"


def settings_for(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a plugin.yaml into what vLLM's `speculative_config` takes.

    Raises:
        ConfigError: the file has a mistake; the message says which and where.
    """
    from vllm_spec_plugin.config import load_config

    return settings_of(load_config(path), os.fspath(path))


def settings_of(config: "PluginConfig", source: str) -> dict[str, Any]:
    """The same for a configuration that has been read from the file `source`."""
    return {KEY: {"config": config.model_dump(mode="json"), "source": source}}


def config_in(settings: Mapping[str, Any]) -> "PluginConfig":
    """The configuration in a dict that `settings_of` made, in whichever process.

    Raises:
        ConfigError: it names a proposer of a distribution that this process does not have.
    """
    from vllm_spec_plugin.config import parse_config

    return parse_config(settings[KEY]["config"], settings[KEY]["source"])
