"""vLLM's frontend process: request validation, and statistics that arrive from the engine."""

from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.compat.patching import wrap
from vllm_spec_plugin.config.request_options import check_options
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.register.engine_args import METHODS, is_ours


def patch() -> None:
    """Lifts refusals that the plugin's scorer makes needless, and exports the plugin's metrics."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.metrics.loggers import StatLoggerManager

    wrap(SamplingParams, "_validate_spec_decode", _check_request)
    wrap(StatLoggerManager, "record", _export_metrics)


def _check_request(original: Callable[..., None]) -> Callable[..., None]:
    """Accepts min-p and logit bias, and checks what the request says about its drafts."""

    from vllm.exceptions import VLLMValidationError

    def validate_spec_decode(self: Any, speculative_config: Any) -> None:
        if not is_ours(speculative_config):
            original(self, speculative_config)
            return
        methods = getattr(speculative_config, METHODS)
        try:
            check_options(self.extra_args, speculative_config.num_speculative_tokens, methods)
        except ValueError as error:
            # The only one that vLLM's server answers with 400 and the message.
            raise VLLMValidationError(str(error), parameter="vllm_xargs") from None

    return validate_spec_decode


def _export_metrics(original: Callable[..., None]) -> Callable[..., None]:
    def record(self: Any, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
        carried = scheduler_stats and scheduler_stats.kv_connector_stats
        if carried and KEY in carried:
            from vllm_spec_plugin.metrics.prometheus import exporter

            exporter().add(carried.pop(KEY))
            scheduler_stats.kv_connector_stats = carried or None
        original(self, scheduler_stats, *args, **kwargs)

    return record


def carry(scheduler_stats: Any, payload: list[dict[str, Any]]) -> None:
    """Puts the plugin's counters on vLLM's `SchedulerStats`, whose own fields are typed and closed.

    `kv_connector_stats` is its one open field that is sent as it is; `record` takes them out again
    before vLLM looks.
    """
    scheduler_stats.kv_connector_stats = {**(scheduler_stats.kv_connector_stats or {}), KEY: payload}
