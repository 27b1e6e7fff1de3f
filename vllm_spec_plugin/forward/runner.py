"""Speculation in the model runner, for vLLM's CPU and CUDA runners."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import runner as compat
from vllm_spec_plugin.compat import sampling as compat_sampling
from vllm_spec_plugin.compat.scheduler import DraftTokenIds
from vllm_spec_plugin.compat.tree_attention import TreeAttention
from vllm_spec_plugin.drafting.drafter import Drafter
from vllm_spec_plugin.drafting.pending_drafts import tokens_to_send
from vllm_spec_plugin.drafting.views import request_views
from vllm_spec_plugin.forward.start_up import (
    DRAFT_SECONDS,
    MOST_KERNEL_SIZES,
    PROBE_SECONDS,
    TARGET_SECONDS,
    describe,
    make_kernels,
    probe_steps,
)
from vllm_spec_plugin.forward.trees import TreeSteps
from vllm_spec_plugin.kv.block_tables import cut_block_tables
from vllm_spec_plugin.messages import NO_PLAN, DraftResult, StepPlan, StepResult, TreeShape, plan_of, send
from vllm_spec_plugin.metrics.counters import Timing
from vllm_spec_plugin.support.gate import check_runner
from vllm_spec_plugin.verification import SpecRejectionSampler
from vllm_spec_plugin.verification.chain import NO_TOKEN

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import GPUModelRunner as Runner
else:
    Runner = object


class SpecRunnerMixin(Runner):
    """Mixin before a vLLM model runner: the plugin verifies and drafts in its steps."""

    drafter: Drafter
    attn_groups: list[list[Any]]
    tree_steps: TreeSteps | None = None
    # vLLM's speculative configuration while a step does not see it.
    hidden_speculation: Any = None
    # Whether the target returns hidden states of the drafter's `aux_layers`, too.
    use_aux_hidden_state_outputs: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The scheduler's plan of the step.
        self._plan: StepPlan = NO_PLAN
        # Tokens of the step by batch row, and hidden states that they were sampled from, while drafts are to be made.
        self._to_draft: tuple[list[list[int]], Any] | None = None
        # Per request that verified a tree in this step: the nodes that were accepted.
        self._accepted_nodes: dict[str, tuple[int, ...]] = {}
        self._step_probe: list[tuple[int, float]] = []
        # Per request the draft tokens that the step verifies; those without are not in it.
        self._scheduled_drafts: Mapping[str, Sequence[int]] = {}
        # Whether vLLM's sampler sampled the step: one row per request.
        self._went_stock_way = False
        with compat.all_logits_processors():
            super().__init__(*args, **kwargs)
        self.use_aux_hidden_state_outputs = bool(self.drafter.aux_layers)
        verification = self.drafter.config.verification
        self.rejection_sampler = SpecRejectionSampler(
            self.sampler,
            self.speculative_config,
            self.device,
            lenience=verification.lenience,
            method=verification.method,
            counts_outputs=False,
        )

    def _setup_eagle3_aux_hidden_state_outputs(self) -> None:
        if self.use_aux_hidden_state_outputs:
            compat.check_gives_aux_states(self)
        super()._setup_eagle3_aux_hidden_state_outputs()

    def _get_eagle3_aux_layers_from_config(self) -> tuple[int, ...] | None:
        return self.drafter.aux_layers or None

    def _update_states(self, scheduler_output: Any) -> Any:
        plan = self._plan = plan_of(scheduler_output)
        self._scheduled_drafts = scheduler_output.scheduled_spec_decode_tokens
        # Where the step before failed, it may be hidden still.
        compat.show_speculation(self)
        if plan.rollback:
            cut_block_tables(self, plan.rollback)
        self.drafter.note_step(self, scheduler_output, plan.scopes)
        if self.tree_steps is not None:
            self.drafter.pending.lay_out(scheduler_output.scheduled_spec_decode_tokens)
        return super()._update_states(scheduler_output)

    def initialize_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Lays out the KV cache, the draft model's included."""
        super().initialize_kv_cache(*args, **kwargs)
        check_runner(self)
        self._groups_of_target = compat.attention_groups_of_target(self, self.drafter.layers)
        if self.drafter.config.drafts_trees:
            layers = compat.attention_layers(self) - self.drafter.layers
            self.tree_steps = TreeSteps(TreeAttention(self, layers), self.drafter.engine is not None)
        self.drafter.bind(self)

    def profile_run(self, *args: Any, **kwargs: Any) -> None:
        """Runs the models once, to compile them and to measure their memory."""
        self.drafter.warm_up(self.max_num_tokens)
        make_kernels(self.drafter.warm_up, self._most_kernels, DRAFT_SECONDS)
        super().profile_run(*args, **kwargs)

    def _dummy_sampler_run(self, hidden_states: Any) -> Any:
        # vLLM measures the memory of verification by it, on a GPU.
        sampler, config = self.rejection_sampler, self.drafter.config
        draws = any(getattr(proposer, "draft_sampling", "") == "probabilistic" for proposer in config.proposers)
        longest = config.draft_length.tokens, self.max_num_tokens, draws
        verify = functools.partial(compat_sampling.verify_longest, sampler, *longest)
        self.rejection_sampler = verify  # type: ignore[assignment]
        try:
            return super()._dummy_sampler_run(hidden_states)
        finally:
            self.rejection_sampler = sampler

    @property
    def _is_alone(self) -> bool:
        """Whether this is the only rank."""
        return bool(self.parallel_config.world_size_across_dp == 1)

    @property
    def _most_kernels(self) -> int:
        """The largest step for which kernels are created."""
        if self.device.type != "cpu" or not self._is_alone:
            return 0
        step = self.scheduler_config.max_num_seqs * (1 + self.drafter.config.draft_length.tokens)
        return int(min(step, self.max_num_tokens, MOST_KERNEL_SIZES))

    def make_kernels(self) -> None:
        """Runs small steps once, on devices where that creates kernels."""
        make_kernels(lambda size: compat.dummy_step(self, size), self._most_kernels, TARGET_SECONDS)

    def probe_steps(self) -> None:
        """Times steps of several sizes after warm-up, if a policy uses it."""
        if self.drafter.config.draft_length.policy == "optimal":
            seconds = PROBE_SECONDS if self._is_alone else None
            self._step_probe = probe_steps(lambda size: compat.dummy_step(self, size), self.max_num_tokens, seconds)

    def describe(self) -> str:
        """Describes what is served, and the memory that it takes, once the KV cache is laid out."""
        per_token, kv_bytes = (
            compat.kv_bytes_per_token(self.kv_cache_config, self.drafter.layers),
            compat.kv_cache_bytes(self),
        )
        kv_draft_bytes = kv_bytes * per_token["draft"] // (sum(per_token.values()) or 1)
        return describe(self.drafter.config.summary, self.drafter.weight_bytes, kv_bytes, kv_draft_bytes)

    def _prepare_inputs(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        drafts = scheduler_output.scheduled_spec_decode_tokens
        self._went_stock_way = not drafts and not compat_sampling.needs_own_sampler(self.input_batch.sampling_metadata)
        if self._went_stock_way and not self._plan.turns:
            compat.hide_speculation(self)
        prepared = super()._prepare_inputs(scheduler_output, *args, **kwargs)
        if self.tree_steps is not None and not drafts:
            self.tree_steps.without_drafts(self._plan.forks)
        elif self.tree_steps is not None:
            with Timing(self.drafter.counters, "tree_seconds"):
                request_ids = self.input_batch.req_ids
                trees = [
                    self.drafter.pending.tree(request_id, drafts.get(request_id, ())) for request_id in request_ids
                ]
                self.tree_steps.prepare(self, scheduler_output.num_scheduled_tokens, trees, self._plan.forks)
        return prepared

    def _build_attention_metadata(
        self,
        num_tokens: int,
        *args: Any,
        num_tokens_padded: int | None = None,
        slot_mappings: Any = None,
        **kwargs: Any,
    ) -> Any:
        if self.tree_steps is not None and self.tree_steps.step is not None:
            with Timing(self.drafter.counters, "tree_seconds"):
                slots = slot_mappings[self.tree_steps.attention.group]
                return self.tree_steps.metadata(num_tokens_padded or num_tokens, slots)
        # The draft model's passes have metadata of their own.
        groups, self.attn_groups = self.attn_groups, self._groups_of_target
        try:
            return super()._build_attention_metadata(
                num_tokens, *args, num_tokens_padded=num_tokens_padded, slot_mappings=slot_mappings, **kwargs
            )
        finally:
            self.attn_groups = groups

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        batch, drafter, drafts = self.input_batch, self.drafter, self._scheduled_drafts
        if self._went_stock_way:
            drafter.pending.drop(batch.req_ids)
            return super()._sample(logits, None)
        steps = self.tree_steps if self.tree_steps is not None and self.tree_steps.step is not None else None
        with Timing(drafter.counters, "verification_seconds"):
            token_ids = [drafts.get(request_id, ()) for request_id in batch.req_ids]
            draft_probs = drafter.pending.take_probs(batch.req_ids, token_ids, logits.device)
            if steps is not None:
                drafter.counters.drafts_cut_for_memory += steps.num_left_out
                spec_decode_metadata.draft_token_ids = steps.without_left_out(
                    spec_decode_metadata.draft_token_ids, NO_TOKEN
                )
            trees = steps.trees if steps is not None else None
            output = self.rejection_sampler(
                spec_decode_metadata, draft_probs, logits, batch.sampling_metadata, trees, token_ids
            )
        if steps is not None:
            with Timing(drafter.counters, "tree_seconds"):
                accepted = steps.join(self.rejection_sampler.verdict.nodes)
                drafter.note_accepted(accepted)
                for row, nodes in accepted.items():
                    self._accepted_nodes[batch.req_ids[row]] = tuple([steps.trees[row].numbers[n] for n in nodes])
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        generators = self.input_batch.generators
        if not generators:
            return super()._bookkeeping_sync(*args, **kwargs)
        with compat.without_generators(self):
            booked = super()._bookkeeping_sync(*args, **kwargs)
        # vLLM samples rows of an unfinished prompt, and drops their tokens.
        token_ids = compat.booked_tokens(booked)
        for i, generator in generators.items():
            self.rejection_sampler.positions.advance(generator, len(token_ids[i]))
        return booked

    def _input_fits_in_drafter(self, common_attn_metadata: Any) -> bool:
        # vLLM disables drafts for the batch when one request nears its end; the plugin limits that request's K.
        return common_attn_metadata is not None

    def propose_draft_token_ids(
        self,
        scheduler_output: Any,
        sampled_token_ids: Any,
        sampling_metadata: Any,
        hidden_states: Any,
        sample_hidden_states: Any,
        *args: Any,
        **kwargs: Any,
    ) -> list[list[int]]:
        """Keeps what drafts are made from; `take_draft_token_ids` makes them if the plan has turns."""
        if self._plan.turns:
            hidden = sample_hidden_states if self.drafter.uses_states else None
            if hidden is not None and not self._went_stock_way:
                hidden = hidden[self.rejection_sampler.verdict.rows[:, -1].to(hidden.device)]
            self._to_draft = sampled_token_ids, hidden
        return []

    def take_draft_token_ids(self) -> Any:
        """Drafts for the next step, and returns the drafts with their `DraftResult`; None if the plan has no turns.

        vLLM calls it when the step's outputs are on their way to the clients, so that no token waits for drafting.
        """
        drafts = None if self._to_draft is None else self._draft(*self._to_draft)
        self._to_draft = None
        if self.tree_steps is not None:
            # The scheduler frees these blocks.
            self.tree_steps.forks = {}
        return drafts

    def _draft(self, sampled_token_ids: list[list[int]], hidden: Any) -> DraftTokenIds:
        """Drafts after the sampled tokens of each batch row and the hidden states that they were sampled from."""
        drafter, trees = self.drafter, dict[str, TreeShape]()
        views = request_views(self, sampled_token_ids, drafter, self._plan.turns, hidden)
        drafts = drafter.draft(views)
        request_ids = [view.request_id for view in views]
        for request_id, draft in zip(request_ids, drafts, strict=True):
            if draft.tree is not None and len(draft.tree.chains) > 1:
                trees[request_id] = len(draft.tree.chains) - 1, draft.tree.depth
        output = DraftTokenIds(request_ids, [tokens_to_send(draft) for draft in drafts])
        sources, drafter.sources = drafter.sources, {}
        send(output, DraftResult(drafter.take_counters() or None, sources, trees))
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Runs vLLM's step from logits to tokens, and sends its `StepResult`."""
        if self.use_aux_hidden_state_outputs:
            num_nodes = self.tree_steps.num_nodes if self.tree_steps is not None else {}
            self.drafter.note_states(self, self._plan.turns, num_nodes)
        output = super().sample_tokens(grammar_output)
        compat.show_speculation(self)
        if output is not None:
            self._send_result(output)
        return output

    def _send_result(self, output: Any) -> None:
        """Sends the step's `StepResult` to the scheduler, unless it is empty."""
        counters, nodes, probe = self.drafter.take_counters() or None, self._accepted_nodes, self._step_probe
        if counters is not None or nodes or probe:
            send(output, StepResult(counters, nodes, probe))
            self._accepted_nodes, self._step_probe = {}, []
