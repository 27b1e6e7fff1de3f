"""Gives prompts priority over drafts, so that drafts hardly delay first tokens of the same step."""

from collections.abc import Sequence
from typing import Any, cast

from vllm_spec_plugin.compat.kv_cache import RequestStatus
from vllm_spec_plugin.compat.scheduler import Scheduler
from vllm_spec_plugin.kv.manager import SpecKVCacheManager
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.first_token import FirstTokenBound, share_out


class PromptPriority:
    """Cuts and forbids drafts in steps of the scheduler that compute prompts.

    Decisions depend on numbers of requests and tokens, never on drafts, so the output's distribution does not change.
    """

    def __init__(self, scheduler: Scheduler, bound: FirstTokenBound, methods: Sequence[str]) -> None:
        """Connects a bound.

        Args:
            scheduler: scheduler that plans the steps.
            bound: bound on drafts, learned from the time of steps.
            methods: methods of the proposers.
        """
        self._scheduler, self._bound, self._methods = scheduler, bound, methods

    def observe(self, num_tokens: int, seconds: float, counted: CountersByMethod | None) -> None:
        """Updates the bound from one step.

        Args:
            num_tokens: tokens that the target computed.
            seconds: of the step, drafting included.
            counted: counts of the workers in the step; None if there are none.
        """
        drafting = 0.0
        if counted is not None:
            drafting = sum([counted.of(method).proposer_seconds for method in self._methods])
        self._bound.observe(num_tokens, seconds - drafting, drafting)

    def cut_drafts(self) -> None:
        """Cuts waiting drafts where verifying all of them would delay a first token."""
        decoding = [
            request for request in self._scheduler.running if request.num_tokens - request.num_computed_tokens <= 1
        ]
        num_prompt_tokens = self._num_prompt_tokens()
        if not decoding or not num_prompt_tokens:
            return
        max_drafts = self._bound.max_drafts(len(decoding) + num_prompt_tokens)
        if max_drafts is not None:
            for request, kept in zip(decoding, share_out(max_drafts, len(decoding)), strict=True):
                request.spec_token_ids = request.spec_token_ids[:kept]

    def allows_drafting(self, output: Any) -> bool:
        """Whether a planned step outputs no first token, or one that drafting hardly delays.

        Args:
            output: vLLM's plan of the step.
        """
        scheduled = output.num_scheduled_tokens
        return self._bound.allows_drafting(output.total_num_scheduled_tokens) or not any(
            request.request_id in scheduled and not request.num_output_tokens and not request.is_prefill_chunk
            for request in self._scheduler.running
        )

    def _num_prompt_tokens(self) -> int:
        """Returns the tokens that the next step may compute of requests without a first token; 0 if there are none."""
        scheduler = self._scheduler
        max_tokens, manager = scheduler.max_num_scheduled_tokens, cast(SpecKVCacheManager, scheduler.kv_cache_manager)
        lefts = [request.num_tokens - request.num_computed_tokens for request in scheduler.running]
        num_tokens = sum(left for left in lefts if left > 1)
        num_admissible = scheduler.max_num_running_reqs - len(scheduler.running)
        room = manager.free_kv_tokens(max_tokens) if manager.block_sizes else max_tokens
        for request in scheduler.waiting:
            # The first that does not fit stops those after it.
            if num_admissible <= 0 or num_tokens >= max_tokens or request.num_tokens > room:
                break
            if request.status == RequestStatus.WAITING:
                num_tokens += request.num_tokens
                room -= request.num_tokens
                num_admissible -= 1
        return int(min(num_tokens, max_tokens))
