"""vLLM's scheduler with the plugin's part of a step: what is drafted, what came of it, and counters."""

import logging
import time
from typing import Any

from vllm_spec_plugin.compat.frontend import carry
from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.compat.scheduler import (
    ACCEPTED_NODES,
    DRAFT_SCOPES,
    DRAFT_TREES,
    DRAFT_TURNS,
    KV_ROLLBACK,
    STEP_COUNTERS,
    STEP_PROBE,
    DraftTokenIds,
)
from vllm_spec_plugin.metrics.acceptance import AcceptanceLog
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.draft_blocks import DraftBlocks
from vllm_spec_plugin.scheduling.draft_length.create import create_control
from vllm_spec_plugin.scheduling.first_token import FirstTokenBound, share_out
from vllm_spec_plugin.scheduling.scope import scope_of
from vllm_spec_plugin.scheduling.stream import GroupedStream

logger = logging.getLogger("vllm.vllm_spec_plugin")

# Between two messages of counters to the frontend, while requests run.
COUNTERS_SECONDS = 0.25


class SpecScheduler(DraftBlocks):
    """Gives every request its own draft length and drafts the KV blocks that nobody else needs, and sends the workers'
    counters on to the frontend.

    A step without drafts goes vLLM's own way: work per request is done only for requests that have drafts, are to be
    drafted for, or hold blocks because they were.

    With a KV connector, block tables stay as vLLM makes them: connectors keep copies of their own,
    which only ever grow.

    Attributes:
        counters_seconds: least time between two messages of counters to the frontend, while requests run.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.config
        control = create_control(config, self.max_num_scheduled_tokens)
        self._adapter = DraftLengthAdapter(control, config, self.max_model_len, self._counters)
        self.counters_seconds, self._counters_sent = COUNTERS_SECONDS, 0.0
        self._shared_scope = config.text_scope
        self._acceptance = AcceptanceLog()
        self._stream = GroupedStream(config.stream_tokens) if config.stream_tokens is not None else None
        # With a fixed length drafts are verified whatever they delay.
        self._first_token = FirstTokenBound() if config.draft_length.policy == "optimal" else None
        self._started = 0.0
        self._manages_kv = self.connector is None
        if not self._manages_kv:
            logger.warning("KV connector in use: draft-block reservation and rollback are disabled")

    def add_request(self, request: Request) -> None:
        """Registers a request; a further turn of a streaming session is none."""
        if request.request_id not in self.requests:
            self._adapter.add(request)
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plans a step.

        What the last step's drafts left unused goes back to the pool, then drafts are cut where the texts
        need their blocks, then vLLM plans, then it is decided how much to draft, and the drafts to come get what
        is left.
        """
        self._adapter.started()
        self._started = time.perf_counter()
        manager, tables = self.kv_cache_manager, {}
        if self._drafted and self._first_token is not None:
            self._favour_prompts(self._first_token)
        if self._manages_kv:
            manager.release_forks()
            if manager.oversized:
                tables = self._roll_back()
            if self._drafted:
                tables |= self._cut_drafts()
            manager.set_draft_headroom(self._wanted())
        goes_on = bool(self._inflight_prefills)
        output = super().schedule(*args, **kwargs)
        if self._drafted:
            self._drafted.difference_update(output.num_scheduled_tokens)
        if self._shared_scope is not None and output.scheduled_new_reqs:
            new = [self.requests[new.req_id] for new in output.scheduled_new_reqs]
            scopes = {request.request_id: scope_of(request.cache_salt, self._shared_scope) for request in new}
            setattr(output, DRAFT_SCOPES, scopes)
        may_draft = True
        if self._first_token is not None and (goes_on or output.scheduled_new_reqs):
            may_draft = self._may_draft(output, self._first_token)
        if turns := self._adapter.plan(output, self.running, self._most_tokens, may_draft=may_draft):
            setattr(output, DRAFT_TURNS, turns)
        if self._manages_kv:
            if tables:
                # A preempted request's table is gone, and sent whole when it resumes.
                running = {request.request_id for request in self.running}
                tables = {request_id: cut for request_id, cut in tables.items() if request_id in running}
                setattr(output, KV_ROLLBACK, tables)
            manager.oversized.update(dict.fromkeys(output.scheduled_spec_decode_tokens))
            self._reserve(output, turns)
            self._fork(output, turns)
        return output

    def _favour_prompts(self, bound: FirstTokenBound) -> None:
        """Cuts drafts where verifying all of them would delay a first token.

        How many are kept depends on numbers of requests and tokens alone, never on drafts: the output's distribution
        stays.
        """
        if not (self.waiting or self._inflight_prefills):
            return
        decoding = [request for request in self.running if request.num_tokens - request.num_computed_tokens <= 1]
        num_prompt_tokens = self._num_prompt_tokens()
        if not decoding or not num_prompt_tokens:
            return
        most = bound.most_drafts(len(decoding) + num_prompt_tokens)
        if most is not None:
            for request, kept in zip(decoding, share_out(most, len(decoding)), strict=True):
                request.spec_token_ids = request.spec_token_ids[:kept]

    def _may_draft(self, output: Any, bound: FirstTokenBound) -> bool:
        """Whether the planned step brings no first token, or one that drafting hardly delays."""
        scheduled = output.num_scheduled_tokens
        return bound.allows_drafting(output.total_num_scheduled_tokens) or not any(
            request.request_id in scheduled and not request.num_output_tokens and not request.is_prefill_chunk
            for request in self.running
        )

    def _num_prompt_tokens(self) -> int:
        """Tokens that the next step may compute of requests without a first token; 0 if there are none."""
        lefts = [request.num_tokens - request.num_computed_tokens for request in self.running]
        num_tokens = sum(left for left in lefts if left > 1)
        places, most = self.max_num_running_reqs - len(self.running), self.max_num_scheduled_tokens
        room = self.kv_cache_manager.free_kv_tokens(most) if self.kv_cache_manager.block_sizes else most
        for request in self.waiting:
            # The first that does not fit stops those after it.
            if places <= 0 or num_tokens >= most or request.num_tokens > room:
                break
            if request.status == RequestStatus.WAITING:
                num_tokens, places, room = num_tokens + request.num_tokens, places - 1, room - request.num_tokens
        return min(num_tokens, most)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Takes a step's outcome in."""
        counted = None
        if payload := getattr(model_runner_output, STEP_COUNTERS, None):
            counted = CountersByMethod.from_payload(payload)
            self._counters.add(counted)
        if self._first_token is not None:
            seconds, drafting = time.perf_counter() - self._started, 0.0
            if counted is not None:
                drafting = sum([counted.of(method).proposer_seconds for method in self._methods])
            self._first_token.observe(scheduler_output.total_num_scheduled_tokens, seconds - drafting, drafting)
        if probe := getattr(model_runner_output, STEP_PROBE, None):
            self._adapter.control.probed(probe)
        num_output = sum(map(len, model_runner_output.sampled_token_ids or ()))
        if num_output and (scheduler_output.scheduled_spec_decode_tokens or self._adapter.pending):
            self._count_acceptance(scheduler_output, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        # Requests that ended in this step, or were aborted while it ran, were drafted for as well.
        if trees := getattr(model_runner_output, DRAFT_TREES, None):
            self._trees |= {
                request_id: tree for request_id, tree in trees.items() if self._adapter.is_served(request_id)
            }
        is_busy = bool(self.running or self.waiting)
        self._adapter.updated(self.requests, model_runner_output, counted, num_output=num_output, is_busy=is_busy)
        if self._stream is not None:
            self._stream.regroup(outputs)
        return outputs

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Takes the drafts of a step; vLLM would look at requests without drafts too."""
        # Where the plan names no request, the worker sends no drafts for any.
        pairs = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False)
        drafts = {request_id: token_ids for request_id, token_ids in pairs if token_ids}
        if drafts:
            super().update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))
            self._drafted.update(filter(self._adapter.is_served, drafts))

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # Others that end have an output still to come, with what was held back.
        request_id = request.request_id
        if self._stream is not None and request.status == RequestStatus.FINISHED_ABORTED:
            self._stream.drop(request_id)
        self._trees.pop(request_id, None)
        self._drafted.discard(request_id)
        self._adapter.forget(request_id)
        fared = self._acceptance.ended(request_id)
        if fared is not None:
            self._counters.of(self._method).ended.append(fared)
        return super()._free_request(request, *args, **kwargs)

    def _count_acceptance(self, scheduler_output: Any, model_runner_output: Any) -> None:
        """Counts a step's verified drafts, and passes on what it did for requests that were to be drafted for."""
        drafts, adapter, requests = scheduler_output.scheduled_spec_decode_tokens, self._adapter, self.requests
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        nodes = getattr(model_runner_output, ACCEPTED_NODES, {})
        sampled, index = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        # By source, draft tokens and accepted ones: there are few different ones.
        fates: dict[tuple[int, int, int], int] = {}
        for request_id in scheduler_output.num_scheduled_tokens if adapter.pending else drafts:
            own = drafts.get(request_id, ())
            if not own and request_id not in adapter.pending:
                continue
            accepted = len(sampled[index[request_id]]) - 1
            if accepted < 0 or not adapter.is_served(request_id):
                continue
            # A grammar's placeholders were never drafts.
            drafted = len(own) - invalid.get(request_id, 0) if invalid else len(own)
            num_output_tokens = requests[request_id].num_output_tokens + accepted + 1
            source = adapter.verified(request_id, drafted, accepted, num_output_tokens, nodes.get(request_id))
            if drafted > 0:
                self._acceptance.verified(request_id, drafted, accepted)
                if request_id in self._verifying:
                    # A tree has one place per level.
                    drafted = min(drafted, self._verifying[request_id][1])
                fate = source, drafted, accepted
                fates[fate] = fates.get(fate, 0) + 1
        for (source, drafted, accepted), num_drafts in fates.items():
            self._counters.of(self._methods[source]).count_verified(drafted, accepted, num_drafts)

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's statistics of the step, now and then with the plugin's."""
        stats = super().make_stats(*args, **kwargs)
        if stats is None:
            # Where nobody wants statistics they must not pile up.
            self._counters.clear()
        elif self._counters:
            now = time.monotonic()
            if now - self._counters_sent >= self.counters_seconds or not (self.running or self.waiting):
                self._counters_sent = now
                carry(stats, self._counters.take_payload())
        return stats
