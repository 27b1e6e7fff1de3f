"""Speculation in the model runner, for vLLM's CPU and CUDA runners."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import runner as compat
from vllm_spec_plugin.compat.scheduler import DraftTokenIds
from vllm_spec_plugin.gate.gate import check_runner
from vllm_spec_plugin.messages import NO_PLAN, DraftResult, StepPlan, StepResult, TreeShape, plan_of, send
from vllm_spec_plugin.metrics.counters import Timing
from vllm_spec_plugin.v1.compat import sampling as compat_sampling
from vllm_spec_plugin.v1.compat.tree_attention import TreeAttention
from vllm_spec_plugin.v1.drafting.drafter import Drafter
from vllm_spec_plugin.v1.drafting.pending_drafts import tokens_to_send
from vllm_spec_plugin.v1.drafting.request_views import request_views
from vllm_spec_plugin.v1.kv.block_tables import cut_block_tables
from vllm_spec_plugin.v1.start_up import (
    DRAFT_SECONDS,
    MOST_KERNEL_SIZES,
    PROBE_SECONDS,
    TARGET_SECONDS,
    describe,
    make_kernels,
    probe_steps,
)
from vllm_spec_plugin.v1.trees import TreesInStep, lay_out
from vllm_spec_plugin.v1.verification.chain import NO_TOKEN, ChainVerdict
from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler
from vllm_spec_plugin.v1.verification.tree import TreeVerdict

if TYPE_CHECKING:
    import torch

    from vllm_spec_plugin.compat.cuda import GPUModelRunner as Runner
    from vllm_spec_plugin.compat.types import (
        CommonAttentionMetadata,
        SamplerOutput,
        SamplingMetadata,
        SchedulerOutput,
        SpecDecodeMetadata,
        SpeculativeConfig,
    )
else:
    Runner = object


@dataclass
class RunnerStep:
    """A step, from the scheduler's message to the drafts. vLLM's hooks return vLLM's values only: ours are kept here.

    Attributes:
        plan: the scheduler's plan.
        drafts: draft tokens to verify, by request; those without are not in it.
        by_vllm: whether vLLM's sampler samples, one row per request.
        trees: trees with branches among the drafts.
        verdict: result of verification; None before it, and by vLLM's sampler.
        accepted_nodes: by request with a verified tree with branches, the nodes that were accepted.
        to_draft: tokens of the step by batch row, and hidden states that they were sampled from, if drafts are made.
    """

    plan: StepPlan = NO_PLAN
    drafts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    by_vllm: bool = False
    trees: TreesInStep | None = None
    verdict: TreeVerdict | ChainVerdict | None = None
    accepted_nodes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    to_draft: "tuple[list[list[int]], torch.Tensor | None] | None" = None


class SpecRunnerMixin(Runner):
    """Mixin before a vLLM model runner: the plugin verifies and drafts in its steps.

    A step's hooks come in this order: `_update_states`, `_prepare_inputs`, `_build_attention_metadata`, the target's
    forward pass, then `sample_tokens` with `_sample`, `_bookkeeping_sync` and `propose_draft_token_ids` inside, and
    `take_draft_token_ids` when the outputs are on their way.
    """

    drafter: Drafter  # type: ignore[assignment]
    rejection_sampler: SpecRejectionSampler  # type: ignore[assignment]
    tree_attention: TreeAttention | None = None
    step: RunnerStep
    # vLLM's speculative configuration while a step does not see it.
    _hidden_speculation: "SpeculativeConfig | None" = None
    # Whether the target returns hidden states of the drafter's `aux_layers`, too.
    use_aux_hidden_state_outputs: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.step = RunnerStep()
        # Until the first result is sent.
        self._step_probe: list[tuple[int, float]] = []
        with compat.all_logits_processors():
            super().__init__(*args, **kwargs)
        self.use_aux_hidden_state_outputs = bool(self.drafter.aux_layers)
        verification = self.drafter.config.verification
        self.rejection_sampler = SpecRejectionSampler(
            self.sampler,
            self.speculative_config,
            self.device,
            lenience=verification.lenience,
            method=verification.on_v1,
            counts_outputs=False,
        )

    def _setup_eagle3_aux_hidden_state_outputs(self) -> None:
        if self.use_aux_hidden_state_outputs:
            compat.check_gives_aux_states(self)
        super()._setup_eagle3_aux_hidden_state_outputs()

    def _get_eagle3_aux_layers_from_config(self) -> tuple[int, ...] | None:
        return self.drafter.aux_layers or None

    def _update_states(self, scheduler_output: "SchedulerOutput") -> Callable[..., Any] | None:
        plan = plan_of(scheduler_output)
        self.step = RunnerStep(plan, scheduler_output.scheduled_spec_decode_tokens)
        # If the previous step failed, it may still be hidden.
        self._show_speculation()
        if plan.rollback:
            cut_block_tables(self, plan.rollback)
        self.drafter.note_step(self, scheduler_output, plan)
        if self.tree_attention is not None:
            self.drafter.pending.lay_out(scheduler_output.scheduled_spec_decode_tokens)
        return super()._update_states(scheduler_output)

    def _show_speculation(self) -> None:
        """Shows vLLM its speculative configuration again, if a step does not see it."""
        if self._hidden_speculation is not None:
            self.speculative_config, self._hidden_speculation = self._hidden_speculation, None

    def initialize_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Lays out the KV cache, the draft model's included."""
        super().initialize_kv_cache(*args, **kwargs)
        check_runner(self, self.drafter.config, self.drafter.layers)
        self._groups_of_target = compat.attention_groups_of_target(self, self.drafter.layers)
        if self.drafter.config.drafts_trees:
            layers = compat.attention_layers(self) - self.drafter.layers
            self.tree_attention = TreeAttention(self, layers)
        self.drafter.bind(self)

    def profile_run(self, *args: Any, **kwargs: Any) -> None:
        """Runs the models once, to compile them and to measure their memory."""
        self.drafter.warm_up(self.max_num_tokens)
        make_kernels(self.drafter.warm_up, self._most_kernels, DRAFT_SECONDS)
        super().profile_run(*args, **kwargs)

    def _dummy_sampler_run(self, hidden_states: "torch.Tensor") -> "torch.Tensor":
        # vLLM measures the memory of verification by it, on a GPU.
        sampler, config = self.rejection_sampler, self.drafter.config
        draws = any(proposer.samples for proposer in config.proposers)
        longest = config.draft_length.tokens, self.max_num_tokens, draws
        verify = functools.partial(compat_sampling.verify_longest, sampler, *longest)
        self.rejection_sampler = verify  # type: ignore[assignment] # vLLM calls it
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
        if self.drafter.config.draft_length.uses_step_times:
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

    def _prepare_inputs(self, scheduler_output: "SchedulerOutput", *args: Any, **kwargs: Any) -> Any:
        step, drafter = self.step, self.drafter
        step.by_vllm = not step.drafts and not compat_sampling.needs_own_sampler(self.input_batch.sampling_metadata)
        if step.by_vllm and not step.plan.draft_plans:
            # vLLM runs the rest of the step as without speculation: its preparation for drafts takes 0.1 ms on a CPU.
            self._hidden_speculation, self.speculative_config = self.speculative_config, None
        prepared = super()._prepare_inputs(scheduler_output, *args, **kwargs)
        if self.tree_attention is not None and step.drafts:
            with Timing(drafter.counters, "tree_seconds"):
                request_ids, num_scheduled = self.input_batch.req_ids, scheduler_output.num_scheduled_tokens
                trees = [
                    drafter.pending.tree(request_id, step.drafts.get(request_id, ())) for request_id in request_ids
                ]
                step.trees = lay_out(self.tree_attention, self, num_scheduled, trees, step.plan.forks)
        return prepared

    def _build_attention_metadata(
        self,
        num_tokens: int,
        *args: Any,
        num_tokens_padded: int | None = None,
        slot_mappings: "dict[int, torch.Tensor] | None" = None,
        **kwargs: Any,
    ) -> Any:
        if (trees := self.step.trees) is not None:
            with Timing(self.drafter.counters, "tree_seconds"):
                assert slot_mappings is not None
                return trees.metadata(num_tokens_padded or num_tokens, slot_mappings[trees.attention.group])
        # The draft model's passes have metadata of their own.
        groups, self.attn_groups = self.attn_groups, self._groups_of_target
        try:
            return super()._build_attention_metadata(  # type: ignore[misc]
                num_tokens, *args, num_tokens_padded=num_tokens_padded, slot_mappings=slot_mappings, **kwargs
            )
        finally:
            self.attn_groups = groups

    def _sample(
        self, logits: "torch.Tensor | None", spec_decode_metadata: "SpecDecodeMetadata | None"
    ) -> "SamplerOutput":
        batch, drafter, step = self.input_batch, self.drafter, self.step
        if step.by_vllm:
            drafter.pending.drop(batch.req_ids)
            return super()._sample(logits, None)
        assert logits is not None
        assert spec_decode_metadata is not None
        trees = step.trees
        with Timing(drafter.counters, "verification_seconds"):
            token_ids = [step.drafts.get(request_id, ()) for request_id in batch.req_ids]
            draft_probs = drafter.pending.take_probs(batch.req_ids, token_ids, logits.device)
            if trees is not None:
                drafter.counters.drafts_cut_for_memory += trees.num_left_out
                spec_decode_metadata.draft_token_ids = trees.without_left_out(
                    spec_decode_metadata.draft_token_ids, NO_TOKEN
                )
            shapes = trees.trees if trees is not None else None
            output, step.verdict = self.rejection_sampler.verify(
                spec_decode_metadata, draft_probs, logits, batch.sampling_metadata, shapes, token_ids
            )
        if trees is not None:
            with Timing(drafter.counters, "tree_seconds"):
                for row, nodes in trees.join(step.verdict.nodes).items():
                    step.accepted_nodes[batch.req_ids[row]] = tuple([trees.trees[row].numbers[n] for n in nodes])
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

    def _input_fits_in_drafter(self, common_attn_metadata: "CommonAttentionMetadata | None") -> bool:
        # vLLM disables drafts for the batch when one request nears its end; the plugin limits that request's K.
        return common_attn_metadata is not None

    def propose_draft_token_ids(
        self,
        scheduler_output: "SchedulerOutput",
        sampled_token_ids: Any,
        sampling_metadata: "SamplingMetadata",
        hidden_states: "torch.Tensor",
        sample_hidden_states: "torch.Tensor",
        *args: Any,
        **kwargs: Any,
    ) -> list[list[int]]:
        """Keeps what drafts are made from; `take_draft_token_ids` makes them if the step has draft plans."""
        step = self.step
        if step.plan.draft_plans:
            hidden = sample_hidden_states if self.drafter.uses_states else None
            if hidden is not None and step.verdict is not None:
                hidden = hidden[step.verdict.rows[:, -1].to(hidden.device)]
            step.to_draft = sampled_token_ids, hidden
        return []

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """Drafts for the next step, and returns the drafts with their `DraftResult`; None without draft plans.

        vLLM calls it when the step's outputs are on their way to the clients, so that no token waits for drafting.
        """
        step, self.step = self.step, RunnerStep()
        return None if step.to_draft is None else self._draft(step.plan, *step.to_draft)

    def _draft(
        self, plan: StepPlan, sampled_token_ids: list[list[int]], hidden: "torch.Tensor | None"
    ) -> DraftTokenIds:
        """Drafts after the sampled tokens of each batch row and the hidden states that they were sampled from."""
        drafter, trees = self.drafter, dict[str, TreeShape]()
        views = request_views(self, sampled_token_ids, drafter, plan.draft_plans, hidden)
        drafts = drafter.draft(views)
        request_ids = [view.request_id for view in views]
        for request_id, draft in zip(request_ids, drafts, strict=True):
            if draft.tree is not None and len(draft.tree.chains) > 1:
                trees[request_id] = len(draft.tree.chains) - 1, draft.tree.depth
        output = DraftTokenIds(request_ids, [tokens_to_send(draft) for draft in drafts])
        sources, drafter.sources = drafter.sources, {}
        send(output, DraftResult(drafter.take_counters() or None, sources, trees=trees))
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:  # type: ignore[override]
        """Runs vLLM's step from logits to tokens, and sends its `StepResult`."""
        if self.use_aux_hidden_state_outputs:
            self.drafter.note_states(self, self.step.plan.draft_plans)
        output = super().sample_tokens(grammar_output)
        self._show_speculation()
        if output is not None:
            self._send_result(output)
        return output

    def _send_result(self, output: object) -> None:
        """Sends the step's `StepResult` to the scheduler, unless it is empty."""
        counters, nodes, probe = self.drafter.take_counters() or None, self.step.accepted_nodes, self._step_probe
        if counters is not None or nodes or probe:
            send(output, StepResult(counters, nodes, probe))
            self._step_probe = []
