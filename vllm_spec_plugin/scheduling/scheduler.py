"""vLLM's scheduler with the plugin's bookkeeping."""

from typing import Any

from vllm_spec_plugin.compat.frontend import carry
from vllm_spec_plugin.compat.scheduler import STEP_COUNTERS, Scheduler, stop_padding
from vllm_spec_plugin.metrics.counters import StepCounters


class SpecScheduler(Scheduler):
    """Sends the workers' counters on to the frontend, and lets every request have its own draft length."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stop_padding(self)
        self._counters: StepCounters | None = None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Takes a step's outcome in."""
        payload = getattr(model_runner_output, STEP_COUNTERS, None)
        if payload is not None:
            step = StepCounters.from_payload(payload)
            if self._counters is None:
                self._counters = step
            else:
                self._counters.add(step)
        return super().update_from_output(scheduler_output, model_runner_output)

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's statistics of the step, with the plugin's."""
        stats = super().make_stats(*args, **kwargs)
        if stats is not None and self._counters is not None:
            carry(stats, self._counters.to_payload())
            self._counters = None
        return stats
