"""Builds the configured proposers, and drafts with them in each step."""

import functools
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.runner import tensor_parallel_cpu_group
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import StepPlan
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.metrics.counters import RANKS_DIFFER, StepCounters
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine
from vllm_spec_plugin.v1.drafting.head_engine import HeadEngine
from vllm_spec_plugin.v1.drafting.pending_drafts import PendingDrafts
from vllm_spec_plugin.v1.drafting.ranks import RankAgreement
from vllm_spec_plugin.v1.drafting.target_states import TargetStates
from vllm_spec_plugin.v1.proposers.create import create_proposer

if TYPE_CHECKING:
    import torch

    from vllm_spec_plugin.compat.types import GPUModelRunner, SchedulerOutput, VllmConfig


class Drafter:
    """vLLM's custom proposer; the plugin's runner calls `draft` instead of `propose`.

    Attributes:
        pending: drafts that wait for verification.
        siblings: maximum tokens that are sampled for one position.
        uses_states: whether a proposer uses the target's hidden states.
        sources: per request with a draft since the last reset, the index of its proposer in the configuration.
        scopes: scope of each request's text; None is private.
    """

    def __init__(self, vllm_config: "VllmConfig") -> None:
        """Builds the configured proposer.

        Args:
            vllm_config: vLLM's configuration, with the plugin's in `additional_config`.
        """
        self.config = config_in(vllm_config.additional_config)
        # Token-only proposers alone draft in the scheduler.
        configs = () if self.config.is_token_only else self.config.proposers
        self._speculative = vllm_config.speculative_config
        self.vocab_size: int = vllm_config.model_config.get_vocab_size()
        self._counters = CountersByMethod()
        self.engine: VllmDraftEngine | None = None
        self._head: HeadEngine | None = None
        for config in configs:
            if (weights := config.draft_weights) is not None and config.uses_aux_states:
                self.engine = self._head = HeadEngine(vllm_config, weights)
            elif weights is not None:
                self.engine = VllmDraftEngine(vllm_config, weights)
        self.uses_states = any(config.uses_hidden_states for config in configs)
        self._states = TargetStates(vllm_config) if self.uses_states else None
        self.pending = PendingDrafts()
        self.scopes: dict[str, str | None] = {}
        self.sources: dict[str, int] = {}
        self.siblings, self._head_bytes = 1, 0
        self._ranks: RankAgreement | None = None
        self._proposers: list[GuardedProposer] = []
        for config in configs:
            engine = self.engine if config.keeps_kv else self._states if config.uses_hidden_states else None
            proposer = create_proposer(config, self.config.draft_length.tokens, self.vocab_size, engine)
            self.siblings = max(self.siblings, getattr(proposer, "num_siblings", 1))
            self._head_bytes += getattr(proposer, "weight_bytes", 0)
            on_error = functools.partial(self._count_error, config.method)
            self._proposers.append(GuardedProposer(proposer, self.vocab_size, on_error, config.method))
        # Of the proposer with an engine.
        self._kv_index = self.config.kv_proposer or 0
        members = zip(self._proposers, configs, strict=True)
        self._cascade = Cascade(
            [Member(proposer, config.drafts_trees, config.keeps_kv) for proposer, config in members], self._note
        )

    def load_model(self, target: "torch.nn.Module") -> None:
        """Loads the draft model, if there is one; vLLM calls it after the target is loaded."""
        if self.engine is not None:
            self.engine.load(target)
            # vLLM finds the model here when it updates or restores weights, and its configuration there.
            self.model = self.engine.model
            assert self._speculative is not None
            self._speculative.draft_model_config = self.engine.model_config

    def renew(self) -> None:
        """Uses a draft model's weights after they were reloaded."""
        if self.engine is not None:
            self.engine.renew()

    def bind(self, runner: "GPUModelRunner") -> None:
        """Binds the proposers to a runner whose KV cache is laid out."""
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

    @property
    def weight_bytes(self) -> int:
        """Bytes of the proposers' weights in this process."""
        return self._head_bytes + (self.engine.weight_bytes if self.engine is not None else 0)

    @property
    def aux_layers(self) -> tuple[int, ...]:
        """Ids of the target's layers whose hidden states a head takes; empty without one."""
        return self.engine.aux_layers if self.engine is not None else ()

    def note_states(self, runner: "GPUModelRunner", planned: Container[str]) -> None:
        """Keeps the target's hidden states of a step, before it is sampled; call it with `aux_layers`.

        Args:
            runner: vLLM's model runner.
            planned: ids of the requests that get drafts after it.
        """
        head, method = self._head, self.config.proposers[self._kv_index].method
        if head is None:
            return

        def note() -> None:
            if not head.note_states(runner, planned):
                self._count_error(method, RANKS_DIFFER)

        self._proposers[self._kv_index].attempt(note, "the target's hidden states")
        if head.states.num_lost:
            self._counters.of(method).requests_lost += head.states.num_lost
            head.states.num_lost = 0

    def note_step(self, runner: "GPUModelRunner", scheduler_output: "SchedulerOutput", plan: StepPlan) -> None:
        """Records a step's plan, before the runner updates its state.

        Args:
            runner: vLLM's model runner.
            scheduler_output: vLLM's plan of the step.
            plan: the plugin's.
        """
        # Sets of strings: their order differs from rank to rank, and drafts may depend on the order of these calls.
        for request_id in sorted(scheduler_output.finished_req_ids):
            self.pending.drop([request_id])
            self.scopes.pop(request_id, None)
            for proposer in self._proposers:
                proposer.finish(request_id)
        for request_id in sorted(scheduler_output.preempted_req_ids or ()):
            self.forget(request_id)
        # After that: a request may have the id of one that has ended.
        self.scopes.update(plan.scopes)
        engine = self.engine
        if engine is not None and not self._proposers[self._kv_index].attempt(
            lambda: engine.note_blocks(runner, scheduler_output), "the step's KV blocks"
        ):
            engine.coverage.reset()

    @property
    def layers(self) -> set[str]:
        """Names of a draft model's attention layers."""
        return self.engine.layers if self.engine is not None else set()

    def propose(self, *args: Any, **kwargs: Any) -> list[list[int]]:
        """Exists because vLLM requires it; never called."""
        raise NotImplementedError("the plugin's runner drafts through `draft`")

    def draft(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Drafts for the next step, and keeps q and shapes in `pending`.

        Args:
            requests: views of the requests to draft for.

        Returns:
            One draft per request; empty if no proposer has one, or after a fault. All are empty if tensor-parallel
            ranks drafted differently.
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
        self.pending.store(requests, drafts)
        return drafts

    def _note(self, index: int, requests: Sequence[RequestView], drafts: Sequence[Draft], seconds: float) -> None:
        """Counts a proposer's drafts and time."""
        config = self.config.proposers[index]
        counters = self._counters.of(config.method)
        counters.count_drafts([len(draft.token_ids) for draft in drafts], seconds)
        for request, draft in zip(requests, drafts, strict=True):
            if draft.token_ids:
                self.sources[request.request_id] = index
            if config.keeps_kv:
                counters.drafts_cut_for_memory += max(request.num_draft_tokens - request.num_draft_slots, 0)

    def forget(self, request_id: str) -> None:
        """Drops the state of a preempted request."""
        self.pending.drop((request_id,))
        for proposer in self._proposers:
            proposer.forget(request_id)

    @property
    def counters(self) -> StepCounters:
        """Counters for events of no single proposer, to be added to."""
        return self._counters.of(self.config.proposer.method)

    def take_counters(self) -> CountersByMethod:
        """Returns the counts since the last call."""
        counters, self._counters = self._counters, CountersByMethod()
        return counters

    def _count_error(self, method: str, reason: str) -> None:
        self._counters.of(method).count_error(reason)
        if self._ranks is not None:
            self._ranks.note_fault()
