"""vLLM's scheduler, with drafts from texts: it drafts, and any of vLLM's runners verifies the token ids that it sends.

A request's next step is planned when its last one's tokens are known, so scheduling is synchronous.
"""

from collections.abc import Mapping
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import (
    DraftTokenIds,
    EngineCoreOutputs,
    ModelRunnerOutput,
    SchedulerOutput,
    VllmConfig,
)
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.base import SpecScheduling
from vllm_spec_plugin.scheduling.text_drafts import TextDrafts, text_requests
from vllm_spec_plugin.turns import Turns


class TextScheduler(SpecScheduling):
    """Drafts before it plans a step, when the outputs of the last one are on their way to the clients."""

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        config, counters = config_in(vllm_config.additional_config), CountersByMethod()
        control = create_control(config, self.max_num_scheduled_tokens)
        self._connect(config, DraftLengthAdapter(control, config, self.max_model_len, counters), counters)
        tokens, vocab_size = config.draft_length.tokens, vllm_config.model_config.get_vocab_size()
        self._drafts = TextDrafts(config.proposers, tokens, vocab_size)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Drafts after the last step's tokens, lets vLLM plan the next step, and chooses the draft lengths after it."""
        if turns := self._adapter.to_draft:
            self._draft(turns)
        self._adapter.started()
        output = super().schedule(*args, **kwargs)
        self._adapter.plan(output, self.running, self._max_step_tokens)
        return output

    def _draft(self, turns: Mapping[str, Turns]) -> None:
        requests = text_requests(turns, self.requests, self.max_model_len, self._shared_scope)
        found, counters, sources = self._drafts.draft(requests)
        self._counters.add(counters)
        self._adapter.drafted(self.requests, DraftResult(counters, sources))
        if found:
            super().update_draft_token_ids(DraftTokenIds(list(found), list(found.values())))

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Ignores what the worker sends: it drafts nothing."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Updates requests, estimates and counters from a step's outcome."""
        return self._end_step(scheduler_output, model_runner_output)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._drafts.finish(request.request_id)
        return super()._free_request(request, *args, **kwargs)
