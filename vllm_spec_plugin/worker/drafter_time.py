"""Measures the time of a worker's drafter, which vLLM calls within its runner, and sends it to the scheduler."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.compat.runner import outcome_of, wrap_drafting
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import StepResult, send
from vllm_spec_plugin.metrics.by_method import CountersByMethod

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
else:
    Worker = object


class DrafterClock:
    """Adds up the time between entry and exit of a drafter's calls; on a GPU that of its kernels.

    It never waits for the device: the time of a call is known a few steps later.
    """

    def __init__(self, device: torch.device) -> None:
        """Starts at 0 seconds."""
        self._is_cuda, self._seconds = device.type == "cuda", 0.0
        self._events: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def timed(self, propose: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that does as `propose`, and is timed unless vLLM calls it to warm up."""

        def proposed(*args: Any, dummy_run: bool = False, **kwargs: Any) -> Any:
            if dummy_run:
                return propose(*args, dummy_run=True, **kwargs)
            begun = self._now()
            drafts = propose(*args, **kwargs)
            self._add(begun, self._now())
            return drafts

        return proposed

    def take(self) -> float:
        """Returns the seconds that became known since the last call."""
        while self._events and self._events[0][1].query():
            begun, ended = self._events.popleft()
            self._seconds += begun.elapsed_time(ended) / 1e3
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _now(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _add(self, begun: Any, ended: Any) -> None:
        if self._is_cuda:
            self._events.append((begun, ended))
        else:
            self._seconds += ended - begun


class TimesDrafter(Worker):
    """Mixin before a vLLM worker."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Loads the model and begins to time its drafter, if this worker has one."""
        super().load_model(*args, **kwargs)
        proposer, device = config_in(self.vllm_config.additional_config).proposers[-1], self.device
        assert device is not None
        self._drafter_clock = None if proposer.is_token_only else DrafterClock(device)
        if self._drafter_clock is None:
            return
        self._drafter_method = proposer.method
        wrap_drafting(self.model_runner, self._drafter_clock.timed, is_v2=self.use_v2_model_runner)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Samples, drafts, and adds the time of drafting to the outcome."""
        output = super().sample_tokens(grammar_output)
        # Outcomes without requests are one object, which vLLM shares.
        if output is None or self._drafter_clock is None or not (outcome := outcome_of(output)).req_ids:
            return output
        if seconds := self._drafter_clock.take():
            counters = CountersByMethod()
            counters.of(self._drafter_method).proposer_seconds = seconds
            send(outcome, StepResult(counters))
        return output
