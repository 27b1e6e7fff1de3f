"""Drafting for a step: from the runner's batch to drafts, and their q kept until they are verified."""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from vllm_spec_plugin.compat.runner import tensor_parallel_cpu_group
from vllm_spec_plugin.compat.scheduler import DRAFT_SCOPES
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member
from vllm_spec_plugin.proposers.guard import RANKS_DIFFER, GuardedProposer
from vllm_spec_plugin.proposers.registry import create_proposer
from vllm_spec_plugin.settings import config_in
from vllm_spec_plugin.verification.draft_probs import DraftProbs, collate
from vllm_spec_plugin.verification.topology import Topology, chain
from vllm_spec_plugin.worker.draft_engine import VllmDraftEngine
from vllm_spec_plugin.worker.draft_order import as_cut
from vllm_spec_plugin.worker.ranks import RankAgreement
from vllm_spec_plugin.worker.target_states import TargetStates


class Drafter:
    """What vLLM knows as the custom proposer; our runner calls `draft` instead of `propose`.

    Attributes:
        siblings: most tokens that are drawn for the same place.
        uses_states: whether drafts are made from the target's hidden states.
        sources: of requests that were drafted for since this was last emptied: by whom, by its place in the
            configuration.
        scopes: of each request, the scope that its text is shared in; None is nobody's but its own.
    """

    def __init__(self, vllm_config: Any) -> None:
        """Builds the configured proposer.

        Args:
            vllm_config: vLLM's configuration, which carries the plugin's in `additional_config`.
        """
        self.config = config_in(vllm_config.additional_config)
        configs = self.config.proposers
        self.vocab_size: int = vllm_config.model_config.get_vocab_size()
        self._counters = CountersByMethod()
        self.engine: VllmDraftEngine | None = None
        for config in configs:
            if (weights := config.draft_weights) is not None:
                self.engine = VllmDraftEngine(vllm_config, weights)
        self.uses_states = any(config.uses_hidden_states for config in configs)
        self._states = TargetStates(vllm_config) if self.uses_states else None
        self._pending: dict[str, Draft] = {}
        self.scopes: dict[str, str | None] = {}
        self.sources: dict[str, int] = {}
        self.siblings = 1
        self._ranks: RankAgreement | None = None
        self._proposers: list[GuardedProposer] = []
        for config in configs:
            engine = self.engine if config.keeps_kv else self._states if config.uses_hidden_states else None
            proposer = create_proposer(config, self.config.draft_length.tokens, self.vocab_size, engine)
            self.siblings = max(self.siblings, getattr(proposer, "num_siblings", 1))
            on_error = functools.partial(self._count_error, config.method)
            self._proposers.append(GuardedProposer(proposer, self.vocab_size, on_error))
        members = zip(self._proposers, configs, strict=True)
        self._cascade = Cascade(
            [Member(proposer, config.drafts_trees, config.keeps_kv) for proposer, config in members], self._note
        )

    def load_model(self, target: Any) -> None:
        """Called by vLLM after the target is loaded: loads the draft, if there is one."""
        if self.engine is not None:
            self.engine.load()

    def bind(self, runner: Any) -> None:
        """Called when vLLM has laid out the KV cache."""
        for source in (self.engine, self._states):
            if source is not None:
                source.bind(runner)
        if (group := tensor_parallel_cpu_group()) is not None:
            self._ranks = RankAgreement(group)
            if self.engine is not None:
                self.engine.ranks = self._ranks

    def warm_up(self, num_tokens: int) -> None:
        """Runs what there is to compile, with that many tokens."""
        if self.engine is not None:
            self.engine.warm_up(num_tokens)

    def note_step(self, runner: Any, scheduler_output: Any) -> None:
        """Takes note of what a step brings, before the runner does."""
        for request_id in scheduler_output.finished_req_ids:
            self._pending.pop(request_id, None)
            self.scopes.pop(request_id, None)
            for proposer in self._proposers:
                proposer.finish(request_id)
        for request_id in scheduler_output.preempted_req_ids or ():
            self.forget(request_id)
        # After that: a request may have the id of one that has ended.
        self.scopes.update(getattr(scheduler_output, DRAFT_SCOPES, ()))
        if self.engine is not None:
            self.engine.note_blocks(runner, scheduler_output)

    def lay_out(self, scheduled: dict[str, list[int]]) -> None:
        """Puts the nodes of trees that a step verifies in depth-first order, as the target computes them.

        Args:
            scheduled: per request the draft tokens that the scheduler has left of what it was sent; changed in place.
        """
        for request_id, sent in scheduled.items():
            draft = self._pending.get(request_id, NO_DRAFT)
            if draft.tree is not None:
                draft = self._pending[request_id] = as_cut(draft, sent)
                scheduled[request_id] = draft.token_ids or sent

    @property
    def layers(self) -> set[str]:
        """Names of a draft model's attention layers."""
        return self.engine.layers if self.engine is not None else set()

    def propose(self, *args: Any, **kwargs: Any) -> list[list[int]]:
        """Never called: vLLM only looks whether it is there."""
        raise NotImplementedError("the plugin's runner drafts through `draft`")

    def draft(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Drafts for the next step and remembers q until `take_probs`.

        Args:
            requests: those that want a draft.

        Returns:
            One draft per request; empty where there is no guess, or where the proposers failed. Of all requests empty
            where tensor-parallel ranks drafted differently.
        """
        drafts = self._cascade.propose(requests)
        if self._ranks is not None and requests and not self._ranks.at_end(drafts):
            self._count_error(self.config.proposer.method, RANKS_DIFFER)
            drafts = [NO_DRAFT] * len(requests)
            request_ids = [request.request_id for request in requests]
            for proposer in self._proposers:
                proposer.reset(request_ids)
            for request_id in request_ids:
                self.sources.pop(request_id, None)
        for request, draft in zip(requests, drafts, strict=True):
            # Of a certain chain there is nothing to remember.
            if draft.probs is not None or draft.tree is not None:
                self._pending[request.request_id] = draft
            else:
                self._pending.pop(request.request_id, None)
        return drafts

    def _note(self, place: int, requests: Sequence[RequestView], drafts: Sequence[Draft], seconds: float) -> None:
        """Counts what a proposer did."""
        config = self.config.proposers[place]
        counters = self._counters.of(config.method)
        counters.proposer_seconds += seconds
        for request, draft in zip(requests, drafts, strict=True):
            if draft.token_ids:
                counters.drafts += 1
                counters.draft_tokens += len(draft.token_ids)
                self.sources[request.request_id] = place
            if config.keeps_kv:
                counters.drafts_cut_for_memory += max(request.num_draft_tokens - request.num_draft_slots, 0)

    def tree(self, request_id: str, draft_token_ids: Sequence[int]) -> Topology:
        """The shape of a request's drafts that are verified in this step, after `lay_out`.

        Others than were drafted are verified one after the other.
        """
        tree, count = self._pending_draft(request_id, draft_token_ids).tree, len(draft_token_ids)
        return chain(count) if tree is None else tree.first(count)

    def _pending_draft(self, request_id: str, draft_token_ids: Sequence[int]) -> Draft:
        """The draft that begins with these tokens; of others neither shape nor q is known."""
        draft = self._pending.get(request_id, NO_DRAFT)
        return draft if draft.token_ids[: len(draft_token_ids)] == list(draft_token_ids) else NO_DRAFT

    def take_probs(
        self, request_ids: Sequence[str], draft_token_ids: Sequence[Sequence[int]], device: torch.device
    ) -> DraftProbs:
        """q of the drafts that are verified in this step, which is then forgotten.

        A request that is not scheduled for some steps has its draft verified later. The scheduler may
        have cut a draft short, but for the sake of its tokens' values only if they were point masses:
        q's rows of the tokens that are left are still right. Tokens that were not drafted count as certain.

        Args:
            request_ids: the step's requests.
            draft_token_ids: per request, the drafted tokens it verifies.
            device: where the scorer runs.
        """
        if not self._pending:
            return None
        pairs = zip(request_ids, draft_token_ids, strict=True)
        probs = [self._pending_draft(request_id, tokens).probs for request_id, tokens in pairs]
        self.drop_pending(request_ids)
        return collate(draft_token_ids, probs, device)

    def drop_pending(self, request_ids: Sequence[str]) -> None:
        """Forgets the drafts of requests whose text goes on without them."""
        if self._pending:
            for request_id in request_ids:
                self._pending.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that was preempted."""
        self._pending.pop(request_id, None)
        for proposer in self._proposers:
            proposer.forget(request_id)

    @property
    def counters(self) -> StepCounters:
        """Of what belongs to no single proposer, to be added to."""
        return self._counters.of(self.config.proposer.method)

    def take_counters(self) -> CountersByMethod:
        """What was counted since the last call."""
        counters, self._counters = self._counters, CountersByMethod()
        return counters

    def _count_error(self, method: str, reason: str) -> None:
        self._counters.of(method).count_error(reason)
        if self._ranks is not None:
            self._ranks.note_fault()
