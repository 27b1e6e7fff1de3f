"""vLLM's schedulers with draft lengths for a drafter in vLLM's runner, synchronous and asynchronous, on both runners.

The scheduler alone decides: how many placeholders of a request's drafts are verified, and how long the drafter drafts
after a step. Runner, drafter and sampler are vLLM's; on V2 the drafter may be heads of the plugin's. Token-only
proposers before it draft here.
"""

import logging
from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.native import AsyncScheduler, can_shorten, holds_min_tokens_too_long, samples_drafts
from vllm_spec_plugin.compat.resting import DrafterAfterRest, after_rest
from vllm_spec_plugin.compat.scheduler import DraftTokenIds, SchedulerOutput, VllmConfig
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.draft_plan import length_of
from vllm_spec_plugin.scheduling.adapter import DrafterTraits
from vllm_spec_plugin.scheduling.base import SpecScheduling
from vllm_spec_plugin.scheduling.resting import DrafterRest

logger = logging.getLogger("vllm.vllm_spec_plugin")


class NativeScheduler(SpecScheduling):
    """Chooses each request's draft length in each step, 0 included; the drafter's index is `_native`."""

    is_async = False

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        config = config_in(vllm_config.additional_config)
        *token_only, drafter = config.proposers
        traits = DrafterTraits(self.is_async, holds_min_tokens_too_long(vllm_config), samples_drafts(vllm_config))
        self._connect(config, token_only, traits)
        self._native, self._native_method = len(token_only), drafter.method
        self._can_shorten = can_shorten(vllm_config)
        self._rest: DrafterRest | None = None
        after = after_rest(vllm_config)
        if isinstance(after, DrafterAfterRest):
            self._rest = DrafterRest(self, after, self._adapter, self._native)
            logger.info("vLLM's drafter rests in steps after which nobody drafts; then it %s", after.value)
        else:
            logger.warning("vLLM's drafter runs in every step, also where nobody drafts: %s", after)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Makes token-only drafts, lets vLLM plan a step, and chooses its draft lengths; or the drafter rests."""
        begun = self._adapter.now()
        self._draft_token_only()
        output = super().schedule(*args, **kwargs)
        if len(output.num_scheduled_tokens) < len(self.running):
            self._drop_drafts_of_others(output)
        step = self._adapter.plan(output, self.running, self._max_step_tokens, begun)
        if not output.num_scheduled_tokens:
            step.rests = True
        elif self._rest is not None:
            self._rest.follow(output, step, self._counters.of(self._native_method))
        if self._can_shorten and not step.rests:
            output.num_spec_tokens_to_schedule = step.longest(self._native)
        return output

    def _drop_drafts_of_others(self, output: SchedulerOutput) -> None:
        """Drops drafts of running requests that a step has no room for: V1 keeps their q for one step only."""
        for request in self.running:
            if request.request_id not in output.num_scheduled_tokens:
                request.spec_token_ids = []

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Takes the drafts of a step, each request's up to its draft length and to the end of its output."""
        draft_plans, requests, drafts = self._adapter.latest_ended.draft_plans, self.requests, []
        for request_id, own in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True):
            length, request = length_of(draft_plans.get(request_id, ()), self._native), requests.get(request_id)
            if request is None or request.is_prefill_chunk:
                length = 0
            elif length:
                length = min(length, self._adapter.requests.room(request))
            drafts.append(own[:length])
        self._count_drafts([len(own) for own in drafts])
        super().update_draft_token_ids(DraftTokenIds(draft_token_ids.req_ids, drafts))

    def _count_drafts(self, lengths: Sequence[int]) -> None:
        """Counts the drafter's drafts of a step, by their lengths; the worker counts its time."""
        self._counters.of(self._native_method).count_drafts(lengths, 0.0)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if self._rest is not None:
            self._rest.forget(request.request_id)
        return super()._free_request(request, *args, **kwargs)


class NativeAsyncScheduler(NativeScheduler, AsyncScheduler):
    """The same where steps are planned before the last outcome is known: drafts stay on the device."""

    is_async = True

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # vLLM shares such lists between requests and does not change them.
        self._placeholders = [[-1] * length for length in range(self.num_spec_tokens + 1)]

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """See `NativeScheduler`."""
        output = super().schedule(*args, **kwargs)
        draft_plans, lengths = self._adapter.latest.draft_plans, []
        for request_id in output.num_scheduled_tokens:
            request = self.requests[request_id]
            if not request.is_prefill_chunk:
                length = length_of(draft_plans.get(request_id, ()), self._native)
                request.spec_token_ids = self._placeholders[length]
                lengths.append(length)
        self._count_drafts(lengths)
        return output
