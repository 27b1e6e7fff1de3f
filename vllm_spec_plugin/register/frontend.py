"""Checks requests, reads predicted outputs and exports metrics in vLLM's frontend process."""

from typing import TYPE_CHECKING, NamedTuple

from vllm_spec_plugin.compat import early_refusal, frontend, openai_api
from vllm_spec_plugin.config.plugin import PluginConfig
from vllm_spec_plugin.config.request_options import SPEC_PREDICTION, check_options, check_verified_by_vllm
from vllm_spec_plugin.register import predictions

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import SamplingParams, SpeculativeConfig

# Attribute of vLLM's `SpeculativeConfig`: a `Served`.
_SERVED = "vllm_spec_plugin_served"


class Served(NamedTuple):
    """Parts of the plugin's configuration that frontend processes need.

    Attributes:
        method: value of `proposer.method`.
        methods: the proposers' methods.
        takes_predictions: whether one of them drafts from predicted outputs.
        vllm_verifies: whether vLLM samples logprobs of drafts itself.
        vllm_refuses: whether vLLM refuses requests with parameters that its verification does not apply.
        summary: see `PluginConfig`.
        max_draft_tokens: as well.
    """

    method: str
    methods: tuple[str, ...]
    takes_predictions: bool
    vllm_verifies: bool
    vllm_refuses: bool
    summary: dict[str, str]
    max_draft_tokens: int


def patch() -> None:
    """Makes vLLM check requests with the plugin, take predicted outputs, and pass on the plugin's counters."""
    frontend.patch(is_ours, _vllm_refuses, _check_request, _start_metrics, _export)
    early_refusal.patch(is_ours)
    openai_api.patch(
        SPEC_PREDICTION,
        _takes_predictions,
        predictions.tokens_of,
        predictions.PredictionUsage,
    )


def attach(
    speculative_config: "SpeculativeConfig", config: PluginConfig, *, vllm_verifies: bool, vllm_refuses: bool
) -> None:
    """Puts what frontend processes need into vLLM's `SpeculativeConfig`, and takes streams apart if it says so."""
    if config.stream_granularity != "free":
        frontend.keep_outputs_apart()
    served = Served(
        config.proposer.method,
        tuple(proposer.method for proposer in config.proposers),
        any(proposer.uses_predictions for proposer in config.proposers),
        vllm_verifies,
        vllm_refuses,
        config.summary,
        config.max_draft_tokens,
    )
    setattr(speculative_config, _SERVED, served)


def served_by(speculative_config: "SpeculativeConfig | None") -> Served:
    """Returns what `attach` has put in."""
    served: Served = getattr(speculative_config, _SERVED)
    return served


def is_ours(speculative_config: "SpeculativeConfig | None") -> bool:
    """Whether vLLM's `SpeculativeConfig` was made from a plugin.yaml."""
    return hasattr(speculative_config, _SERVED)


def _check_request(params: "SamplingParams", speculative_config: "SpeculativeConfig") -> None:
    served = served_by(speculative_config)
    if served.vllm_verifies:
        with frontend.bad_request("logprob_token_ids"):
            check_verified_by_vllm(params.logprob_token_ids)
    with frontend.bad_request("vllm_xargs"):
        check_options(
            params.extra_args,
            speculative_config.num_speculative_tokens,
            served.methods,
            takes_predictions=served.takes_predictions,
        )


def _vllm_refuses(speculative_config: "SpeculativeConfig | None") -> bool:
    return served_by(speculative_config).vllm_refuses


def _takes_predictions(speculative_config: "SpeculativeConfig | None") -> bool:
    return is_ours(speculative_config) and served_by(speculative_config).takes_predictions


def _start_metrics(speculative_config: "SpeculativeConfig", model_name: str, engine: str) -> None:
    from vllm_spec_plugin.metrics.prometheus import exporter

    served = served_by(speculative_config)
    methods = served.method, *served.methods
    exporter().start(served.summary, methods, served.max_draft_tokens, model_name, engine)


def _export(payload: frontend.Payload, model_name: str, engine: str) -> None:
    from vllm_spec_plugin.metrics.prometheus import exporter

    exporter().add(payload, model_name, engine)
