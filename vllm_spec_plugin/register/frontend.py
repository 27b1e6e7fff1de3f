"""Checks requests and exports metrics in vLLM's frontend process."""

from typing import Any

from vllm_spec_plugin.compat import frontend
from vllm_spec_plugin.config.request_options import check_options

PROPOSER = "vllm_spec_plugin.drafting.drafter.Drafter"
# Attribute of vLLM's `SpeculativeConfig`: the served methods.
METHODS = "vllm_spec_plugin_methods"


def patch() -> None:
    """Makes vLLM check requests with the plugin, and pass on the plugin's counters."""
    frontend.patch(is_ours, _check_request, _export)


def is_ours(speculative_config: Any) -> bool:
    """Whether vLLM's `SpeculativeConfig` was made from a plugin.yaml."""
    return speculative_config is not None and speculative_config.model == PROPOSER


def _check_request(extra_args: dict[str, Any] | None, speculative_config: Any) -> None:
    check_options(extra_args, speculative_config.num_speculative_tokens, getattr(speculative_config, METHODS))


def _export(payload: frontend.Payload) -> None:
    from vllm_spec_plugin.metrics.prometheus import exporter

    exporter().add(payload)
