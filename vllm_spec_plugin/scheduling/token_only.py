"""vLLM's scheduler with token-only proposers: it drafts, and vLLM's V2 runner verifies the token ids that it sends.

A request's next step is planned when its last one's tokens are known, so scheduling is synchronous.
"""

from typing import Any

from vllm_spec_plugin.compat.scheduler import DraftTokenIds, SchedulerOutput, VllmConfig
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.scheduling.base import SpecScheduling


class TokenOnlyScheduler(SpecScheduling):
    """Drafts before it plans a step, when the outputs of the last one are on their way to the clients."""

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        config = config_in(vllm_config.additional_config)
        self._connect(config, config.proposers)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Drafts after the last step's tokens, lets vLLM plan the next step, and chooses the draft lengths after it."""
        begun = self._adapter.now()
        self._draft_token_only()
        output = super().schedule(*args, **kwargs)
        self._adapter.plan(output, self.running, self._max_step_tokens, begun)
        return output

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Ignores what the worker sends: it drafts nothing."""
