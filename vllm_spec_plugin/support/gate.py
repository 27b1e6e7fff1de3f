"""The start-up gate: refuses models and servers that drafts would not be exact on.

It looks twice: at vLLM's configuration before any process starts, and at the layers and KV cache of each worker.
"""

from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.draft_model import draft_model_config
from vllm_spec_plugin.compat.facts import Facts
from vllm_spec_plugin.compat.reading import read_facts, read_runner_facts
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.schema.errors import ConfigError, show_reason
from vllm_spec_plugin.support import rules

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig


def check_served(vllm_config: Any, config: "PluginConfig", source: str) -> None:
    """Refuses what vLLM's configuration tells is not served.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        config: the plugin's.
        source: the configuration file, for the message.

    Raises:
        ConfigError: names everything in the way.
    """
    rules.check(rules.features_of(config), facts_of(vllm_config, config), source)


def check_runner(runner: Any) -> None:
    """Refuses what only shows once the KV cache is laid out, such as layers of a model that vLLM does not know.

    Args:
        runner: our model runner.

    Raises:
        ConfigError: names everything in the way.
    """
    config = runner.drafter.config
    facts = read_runner_facts(runner, facts_of(runner.vllm_config, config), runner.drafter.layers)
    rules.check(rules.features_of(config), facts, runner.vllm_config.additional_config[KEY]["source"])


def facts_of(vllm_config: Any, config: "PluginConfig") -> Facts:
    """The facts that decide, before weights are loaded.

    Raises:
        ConfigError: vLLM does not take the draft model.
    """
    weights = next((proposer.draft_weights for proposer in config.proposers if proposer.draft_weights), None)
    draft = None
    if weights is not None:
        model, dtype, quantization, _ = weights
        try:
            draft = draft_model_config(vllm_config.model_config, model=model, dtype=dtype, quantization=quantization)
        except ValueError as error:
            raise ConfigError(f"proposer.model: vLLM can't run '{model}': {show_reason(error)}") from None
    return read_facts(vllm_config, draft)
