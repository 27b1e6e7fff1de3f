"""Lets vLLM's drafter rest: it does not run in steps after which nobody drafts.

vLLM runs its drafter in every step, also for no drafts, so that it has keys and values of all tokens. A drafter that
rested lacks some (`DrafterGaps`). A draft model computes them from the tokens before it drafts for such a request
again. Heads cannot, as the target's hidden states are gone: they draft with the gap, which costs accepted tokens only.
Blocks of the prefix cache that a head lacks are removed from it once a request that may draft has found them, so that
the next one computes them with the head: else a system prompt of a rest would always lack them.
"""

from vllm_spec_plugin.compat.resting import REST, DrafterAfterRest, without_default_skip
from vllm_spec_plugin.compat.scheduler import Scheduler, SchedulerOutput
from vllm_spec_plugin.compat.step_blocks import added_blocks
from vllm_spec_plugin.messages import StepPlan, send
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.policy.control import Off
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.drafter_gaps import DrafterGaps
from vllm_spec_plugin.scheduling.steps import Step


class DrafterRest:
    """Decides for each step whether the drafter rests, and what it computes before it drafts.

    Attributes:
        gaps: what the drafter lacks; stays empty for drafters without keys and values.
    """

    def __init__(
        self, scheduler: Scheduler, after_rest: DrafterAfterRest, adapter: DraftLengthAdapter, drafter: int
    ) -> None:
        """Starts without gaps.

        Args:
            scheduler: the scheduler, whose KV cache is set up.
            after_rest: what the drafter does after it has rested.
            adapter: the scheduler's, with the policy and its requests.
            drafter: the drafter's index in the configuration.
        """
        groups = scheduler.kv_cache_config.kv_cache_groups
        null_block = scheduler.kv_cache_manager.block_pool.null_block.block_id
        self.gaps = DrafterGaps([group.kv_cache_spec.block_size for group in groups], null_block)
        self._scheduler, self._after_rest = scheduler, after_rest
        self._adapter, self._drafter = adapter, drafter

    def follow(self, output: SchedulerOutput, step: Step, counters: StepCounters) -> None:
        """Lets the drafter rest in a planned step, or compute what it lacks before it drafts.

        Args:
            output: vLLM's plan of the step, changed in place.
            step: the step; requests that the drafter cannot draft for yet lose it in their plans.
            counters: counters of the drafter, to be added to.
        """
        counters.stale_requests += self._note_blocks(output)
        step.rests = not step.longest(self._drafter) and self._may_rest(output)
        if step.rests:
            counters.drafter_rests += 1
            counters.stale_requests += self._begin_rest(output)
            return
        step.caught_up, unready = self._catch_up(output)
        counters.caught_up_tokens += step.caught_up
        for request_id in unready & step.draft_plans.keys():
            own = tuple(planned for planned in step.draft_plans.pop(request_id) if planned[0] != self._drafter)
            if own:
                step.draft_plans[request_id] = own

    def _may_rest(self, output: SchedulerOutput) -> bool:
        """Whether the drafter may rest in a step after which nobody drafts.

        A head never computes what it then lacks. While drafting is off for a short time, it has all prompts at least.
        """
        control = self._adapter.control
        if self._after_rest is not DrafterAfterRest.KEEPS_GAP or control.is_constant:
            return True
        scheduled = output.num_scheduled_tokens
        num_drafts = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        if control.off is Off.SHORT and output.total_num_scheduled_tokens == len(scheduled) + num_drafts:
            return True
        return not any(map(self._may_draft_soon, scheduled))

    def _may_draft_soon(self, request_id: str) -> bool:
        """Whether the drafter may draft for a request, and the policy is not off for long."""
        adapter = self._adapter
        return adapter.requests.may_draft(request_id, self._drafter) and adapter.control.off is not Off.LONG

    def _note_blocks(self, output: SchedulerOutput) -> int:
        """Notes the blocks that a step brings; returns the number of requests that found lacking ones in the cache."""
        if not self.gaps:
            return 0
        num_stale = 0
        self.gaps.copied(output.kv_cache_block_copies or ())
        for request_id, computed, tables, begins in added_blocks(output):
            if not begins:
                self.gaps.extended(request_id, tables)
                continue
            lacking = self.gaps.begun(request_id, computed, tables)
            num_stale += bool(lacking)
            if lacking and self._after_rest is DrafterAfterRest.KEEPS_GAP and self._may_draft_soon(request_id):
                self._scheduler.kv_cache_manager.evict_blocks(lacking)
        return num_stale

    def _begin_rest(self, output: SchedulerOutput) -> int:
        """Makes the drafter rest in a step; returns the number of requests that begin to lack something."""
        output.num_spec_tokens_to_schedule = REST
        without_default_skip(output)
        if self._after_rest is DrafterAfterRest.AS_BEFORE:
            return 0
        # Of others with a gap, `_note_blocks` has noted new blocks.
        fresh = output.num_scheduled_tokens.keys() - self.gaps.first.keys()
        for request_id in fresh:
            request = self._scheduler.requests[request_id]
            # Where scheduling is asynchronous, drafts under way may be rejected.
            first = request.num_computed_tokens - request.num_in_flight_tokens
            self.gaps.open(request_id, first, self._scheduler.kv_cache_manager.get_block_ids(request_id))
        return len(fresh)

    def _catch_up(self, output: SchedulerOutput) -> tuple[int, set[str]]:
        """Lets the drafter compute what it lacks before it drafts.

        Returns:
            The number of tokens that it computes, and the requests that it cannot draft for yet.
        """
        if not self.gaps.first or self._after_rest is not DrafterAfterRest.CATCHES_UP:
            return 0, set()
        requests, ends = self._scheduler.requests, {}
        lacking = self.gaps.first.keys() & output.num_scheduled_tokens.keys() & self._adapter.requests.ids
        for request_id in lacking:
            request = requests[request_id]
            end = request.num_computed_tokens - output.num_scheduled_tokens[request_id]
            # Of drafts under way it is not known which tokens take their place.
            if self.gaps.first[request_id] < end <= request.num_tokens:
                ends[request_id] = end
        tokens: dict[str, tuple[int, list[int]]] = {}
        spans = self.gaps.spans(ends, self._scheduler.scheduler_config.max_num_batched_tokens)
        for request_id, (first, stop) in spans.items():
            tokens[request_id] = first, requests[request_id].all_token_ids[first:stop]
            tables = self._scheduler.kv_cache_manager.get_block_ids(request_id)
            self.gaps.fill(request_id, stop, ends[request_id], tables)
        if tokens:
            send(output, StepPlan(catch_up=tokens))
        return sum(len(own) for _, own in tokens.values()), lacking & self.gaps.first.keys()

    def forget(self, request_id: str) -> None:
        """Forgets a request that ended."""
        self.gaps.forget(request_id)
