"""Checks requests, reads predicted outputs and exports metrics in vLLM's frontend process."""

from typing import Any

from vllm_spec_plugin.compat import frontend, openai_api
from vllm_spec_plugin.config.request_options import SPEC_PREDICTION, check_options
from vllm_spec_plugin.register import predictions

PROPOSER = "vllm_spec_plugin.drafting.drafter.Drafter"
# Attribute of vLLM's `SpeculativeConfig`: the served methods.
METHODS = "vllm_spec_plugin_methods"
# And whether one of them drafts from predicted outputs.
PREDICTIONS = "vllm_spec_plugin_predictions"


def patch() -> None:
    """Makes vLLM check requests with the plugin, take predicted outputs, and pass on the plugin's counters."""
    frontend.patch(is_ours, _check_request, _export)
    openai_api.patch(
        SPEC_PREDICTION,
        _takes_predictions,
        predictions.tokens_of,
        predictions.PredictionUsage,
    )


def is_ours(speculative_config: Any) -> bool:
    """Whether vLLM's `SpeculativeConfig` was made from a plugin.yaml."""
    return speculative_config is not None and speculative_config.model == PROPOSER


def _check_request(extra_args: dict[str, Any] | None, speculative_config: Any) -> None:
    check_options(
        extra_args,
        speculative_config.num_speculative_tokens,
        getattr(speculative_config, METHODS),
        takes_predictions=_takes_predictions(speculative_config),
    )


def _takes_predictions(speculative_config: Any) -> bool:
    return getattr(speculative_config, PREDICTIONS, False)


def _export(payload: frontend.Payload) -> None:
    from vllm_spec_plugin.metrics.prometheus import exporter

    exporter().add(payload)
