"""The start-up gate: refuses models and servers on which drafts would not be exact.

It checks twice: vLLM's configuration before any process starts, and the layers and KV cache of each worker.
"""

from typing import TYPE_CHECKING

from vllm_spec_plugin.compat.drafter_model import draft_model_config
from vllm_spec_plugin.compat.model_facts import Facts
from vllm_spec_plugin.compat.read_facts import read_facts, read_runner_facts
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.gate import refusals
from vllm_spec_plugin.gate.ways import parts_of, way_of
from vllm_spec_plugin.schema.errors import ConfigError, show_reason

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner, VllmConfig
    from vllm_spec_plugin.config import PluginConfig


def check_served(vllm_config: "VllmConfig", config: "PluginConfig", source: str) -> None:
    """Refuses a server by vLLM's configuration.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        config: the plugin's configuration.
        source: name of the configuration file, for the message.

    Raises:
        ConfigError: lists every refusal.
    """
    facts = facts_of(vllm_config, config)
    way = way_of(config, is_v2=vllm_config.use_v2_model_runner, is_async=facts.server.is_asynchronous)
    refusals.check(way, parts_of(config), facts, source)


def check_runner(runner: "GPUModelRunner", config: "PluginConfig", draft_layers: set[str]) -> None:
    """Refuses a server by the layers and KV cache of its model runner.

    Args:
        runner: the model runner, after its KV cache was initialised.
        config: the plugin's configuration.
        draft_layers: names of a draft model's attention layers.

    Raises:
        ConfigError: lists every refusal.
    """
    facts = read_runner_facts(runner, facts_of(runner.vllm_config, config), draft_layers)
    settings = runner.vllm_config.additional_config
    assert isinstance(settings, dict)
    refusals.check(way_of(config, is_v2=False, is_async=False), parts_of(config), facts, settings[KEY]["source"])


def facts_of(vllm_config: "VllmConfig", config: "PluginConfig") -> Facts:
    """Reads the properties that rules check, before weights are loaded.

    Raises:
        ConfigError: vLLM cannot run the draft model.
    """
    weights = next((proposer.draft_weights for proposer in config.proposers if proposer.draft_weights), None)
    draft = None
    if weights is not None:
        try:
            draft = draft_model_config(vllm_config.model_config, **weights._asdict())
        except ValueError as error:
            raise ConfigError(f"proposer.model: vLLM cannot run '{weights.model}': {show_reason(error)}") from None
    return read_facts(vllm_config, draft)
