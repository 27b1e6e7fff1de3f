"""vLLM's frontend process: request validation, and statistics from the engine."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import v2_limits
from vllm_spec_plugin.compat.patching import wrap

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import (
        AsyncLLM,
        PrometheusStatLogger,
        RequestOutputCollector,
        SamplingParams,
        SchedulerStats,
        SpeculativeConfig,
        StatLoggerManager,
    )

# `kv_connector_stats` is the one open field of vLLM's `SchedulerStats` that is sent as it is; this is the key in it.
_ENTRY = "vllm_spec_plugin"
_STOPPED = "The server was stopped before the response was complete. Please send the request to another instance."
Payload = list[dict[str, Any]]


def patch(
    is_ours: "Callable[[SpeculativeConfig | None], bool]",
    vllm_refuses: "Callable[[SpeculativeConfig | None], bool]",
    check: "Callable[[SamplingParams, SpeculativeConfig], None]",
    start: "Callable[[SpeculativeConfig, str, str], None]",
    export: Callable[[Payload, str, str], None],
) -> None:
    """Allows sampling parameters that the plugin's sampler supports, exports its metrics, and ends requests at a stop.

    Args:
        is_ours: whether vLLM's `SpeculativeConfig` is the plugin's.
        vllm_refuses: whether vLLM refuses what its verification does not apply, for that `SpeculativeConfig`.
        check: checks a request for that `SpeculativeConfig`; raises what vLLM answers with status 400.
        start: called once an engine is ready, with its `SpeculativeConfig`, and vLLM's labels model name and engine.
        export: receives the engine's counters of a step, and the same labels.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.metrics.loggers import StatLoggerManager

    wrap(AsyncLLM, "shutdown", _ending_requests(is_ours))
    wrap(SamplingParams, "_validate_spec_decode", _checked(is_ours, vllm_refuses, check))
    wrap(InputProcessor, "process_inputs", v2_limits.refusing(is_ours))
    wrap(StatLoggerManager, "log_engine_initialized", _starting(is_ours, start))
    wrap(StatLoggerManager, "record", _exporting(export))


def keep_outputs_apart() -> None:
    """Makes vLLM hand each output of a stream to its client by itself, where it else merges those that wait."""
    from vllm.v1.engine.output_processor import RequestOutputCollector

    def put_behind(original: Callable[..., None]) -> Callable[..., None]:
        def put(self: RequestOutputCollector, output: Any) -> None:
            if self.aggregate and self.output is not None and not isinstance(output, Exception):
                self.__dict__.setdefault(_ENTRY, deque()).append(output)
            else:
                original(self, output)

        return put

    def then_next(original: Callable[..., Any]) -> Callable[..., Any]:
        async def get(self: RequestOutputCollector) -> Any:
            output = await original(self)
            _move_up(self)
            return output

        return get

    def then_next_now(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_nowait(self: RequestOutputCollector) -> Any:
            output = original(self)
            _move_up(self)
            return output

        return get_nowait

    wrap(RequestOutputCollector, "put", put_behind)
    wrap(RequestOutputCollector, "get", then_next)
    wrap(RequestOutputCollector, "get_nowait", then_next_now)


def _move_up(collector: "RequestOutputCollector") -> None:
    """Makes the next waiting output the one that the client gets."""
    if collector.output is None and (waiting := collector.__dict__.get(_ENTRY)):
        collector.output = waiting.popleft()
        collector.ready.set()


@contextlib.contextmanager
def bad_request(parameter: str) -> Iterator[None]:
    """Converts a ValueError to the only exception that vLLM's server answers with status 400 and the message.

    Args:
        parameter: name of the request's parameter, for the response.
    """
    from vllm.exceptions import VLLMValidationError

    try:
        yield
    except ValueError as error:
        raise VLLMValidationError(str(error), parameter=parameter) from None


def _checked(
    is_ours: "Callable[[SpeculativeConfig | None], bool]",
    vllm_refuses: "Callable[[SpeculativeConfig | None], bool]",
    check: "Callable[[SamplingParams, SpeculativeConfig], None]",
) -> Callable[..., Any]:
    def replace(original: Callable[..., None]) -> Callable[..., None]:
        def validate_spec_decode(self: "SamplingParams", speculative_config: "SpeculativeConfig | None") -> None:
            if not is_ours(speculative_config) or vllm_refuses(speculative_config):
                original(self, speculative_config)
            if speculative_config is not None and is_ours(speculative_config):
                check(self, speculative_config)

        return validate_spec_decode

    return replace


def _ending_requests(is_ours: "Callable[[SpeculativeConfig | None], bool]") -> Callable[..., Any]:
    """Ends the requests that are open when a server stops with an error of status 503.

    vLLM kills the engine and cancels the task that would report its end, so that open requests never end, and the
    server waits for their connections (https://github.com/vllm-project/vllm/pull/36964).
    """
    from vllm.exceptions import GracefulHTTPError

    def replace(original: Callable[..., None]) -> Callable[..., None]:
        def shutdown(self: "AsyncLLM", timeout: float | None = None) -> None:
            original(self, timeout)
            # vLLM calls this again for each object that is deleted, also if its constructor failed.
            task = getattr(self, "output_handler", None)
            if task is None or task.get_loop().is_closed() or not is_ours(self.vllm_config.speculative_config):
                return
            error = GracefulHTTPError(_STOPPED, HTTPStatus.SERVICE_UNAVAILABLE)
            # The cancellation comes first in this loop.
            task.get_loop().call_soon_threadsafe(self.output_processor.propagate_error, error)

        return shutdown

    return replace


def _prometheus_of(manager: "StatLoggerManager") -> "PrometheusStatLogger":
    """Returns vLLM's exporter of metrics, which every manager of loggers has."""
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    return next(logger for logger in manager.stat_loggers if isinstance(logger, PrometheusStatLogger))


def _starting(
    is_ours: "Callable[[SpeculativeConfig | None], bool]", start: "Callable[[SpeculativeConfig, str, str], None]"
) -> Callable[..., Any]:
    def replace(original: Callable[..., None]) -> Callable[..., None]:
        def log_engine_initialized(self: "StatLoggerManager") -> None:
            original(self)
            exporter = _prometheus_of(self)
            config = exporter.vllm_config.speculative_config
            if config is not None and is_ours(config):
                for labels in exporter.per_engine_labelvalues.values():
                    start(config, *map(str, labels))

        return log_engine_initialized

    return replace


def _exporting(export: Callable[[Payload, str, str], None]) -> Callable[..., Any]:
    def replace(original: Callable[..., None]) -> Callable[..., None]:
        def record(
            self: "StatLoggerManager",
            scheduler_stats: "SchedulerStats | None",
            *args: Any,
            engine_idx: int | None = None,
            **kwargs: Any,
        ) -> None:
            if scheduler_stats and _ENTRY in (carried := scheduler_stats.kv_connector_stats or {}):
                labels = _prometheus_of(self).per_engine_labelvalues[engine_idx or 0]
                export(carried.pop(_ENTRY), *map(str, labels))
                scheduler_stats.kv_connector_stats = carried or None
            original(self, scheduler_stats, *args, engine_idx=engine_idx, **kwargs)

        return record

    return replace


def carry(scheduler_stats: "SchedulerStats", payload: Payload) -> None:
    """Attaches the plugin's counters to vLLM's `SchedulerStats`; `record` removes them before vLLM reads it."""
    scheduler_stats.kv_connector_stats = {**(scheduler_stats.kv_connector_stats or {}), _ENTRY: payload}
