"""The form of a configuration on vLLM's V2 runner."""

from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.config.loading import parse_config
from vllm_spec_plugin.schema.errors import ConfigError

if TYPE_CHECKING:
    from vllm_spec_plugin.config.plugin import PluginConfig


def on_v2(config: "PluginConfig", source: str) -> "PluginConfig":
    """Returns the configuration that the V2 runner serves in place of another: a draft model is vLLM's drafter there.

    Raises:
        ConfigError: only the V1 runner can serve it; the message is the reason, as in "V1 runner: trees need V1".
    """
    *token_only, last = config.proposers
    if config.verification.lenience < 1:
        raise ConfigError("verification.lenience below 1 needs V1")
    if config.drafts_trees:
        raise ConfigError("trees need V1")
    # Token-only drafts have no q, and vLLM keeps one kind.
    there = last.on_v2(with_q=config.verification.method in ("block", "token") and not token_only)
    if there is None:
        raise ConfigError(f"the plugin's {last.method} needs V1")
    if other := next((first.method for first in token_only if not first.is_token_only), None):
        raise ConfigError(f"a method after {other} needs V1")
    if there is last:
        return config
    members = [member.model_dump(mode="json") for member in (*token_only, there)]
    data: dict[str, Any] = config.model_dump(mode="json")
    data["proposer"] = {"method": "cascade", "proposers": members} if token_only else members[0]
    return parse_config(data, source)
