"""Gives prompts priority over drafts, so that verification hardly delays first tokens of the same step."""

from vllm_spec_plugin.compat.kv_cache import RequestStatus
from vllm_spec_plugin.compat.scheduler import Scheduler
from vllm_spec_plugin.policy.control import DraftLengthControl
from vllm_spec_plugin.v1.kv.manager import SpecKVCacheManager


class PromptPriority:
    """Cuts drafts in steps of the scheduler that compute prompts.

    Drafting itself delays no token of its step: outputs are sent before.

    Decisions depend on numbers of requests and tokens, never on drafts, so the output's distribution does not change.
    """

    def __init__(self, scheduler: Scheduler, manager: SpecKVCacheManager, control: DraftLengthControl) -> None:
        """Connects a policy.

        Args:
            scheduler: scheduler that plans the steps.
            manager: the scheduler's KV cache manager.
            control: the policy, which bounds drafts.
        """
        self._scheduler, self._manager, self._control = scheduler, manager, control

    def cut_drafts(self) -> None:
        """Cuts waiting drafts where verifying all of them would delay a first token."""
        running = self._scheduler.running
        decoding = [request for request in running if request.num_tokens - request.num_computed_tokens <= 1]
        num_prompt_tokens = self._num_prompt_tokens()
        if not decoding or not num_prompt_tokens:
            return
        context = sum([request.num_computed_tokens for request in running])
        # Not of the drafts that wait: their number may depend on their tokens.
        longest = self._scheduler.num_spec_tokens * len(decoding)
        most = self._control.max_beside_prompts(len(decoding) + num_prompt_tokens, len(running), context, longest)
        # Equal shares; earlier requests get the remainder.
        each, more = divmod(most, len(decoding))
        for i, request in enumerate(decoding):
            request.spec_token_ids = request.spec_token_ids[: each + (i < more)]

    def _num_prompt_tokens(self) -> int:
        """Returns the tokens that the next step may compute of requests without a first token; 0 if there are none."""
        scheduler = self._scheduler
        max_tokens, manager = scheduler.max_num_scheduled_tokens, self._manager
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
