"""The part of a model runner that speculates, for vLLM's CPU and CUDA runners alike."""

import time
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.compat import runner as compat
from vllm_spec_plugin.compat.sampling import SpecDecodeMetadata
from vllm_spec_plugin.compat.scheduler import DRAFT_SOURCES, DRAFT_TREES, DRAFT_TURNS, STEP_COUNTERS, STEP_PROBE
from vllm_spec_plugin.compat.tree_attention import TreeAttention
from vllm_spec_plugin.verification import SpecRejectionSampler
from vllm_spec_plugin.verification.chain import NO_TOKEN
from vllm_spec_plugin.worker.block_tables import cut_block_tables
from vllm_spec_plugin.worker.drafter import Drafter
from vllm_spec_plugin.worker.kernels import DRAFT_SECONDS, TARGET_SECONDS, make_kernels
from vllm_spec_plugin.worker.step_probe import PROBE_SECONDS, probe_steps
from vllm_spec_plugin.worker.trees import TreeSteps
from vllm_spec_plugin.worker.views import request_views

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import GPUModelRunner as Runner
else:
    Runner = object


class SpecRunnerMixin(Runner):
    """Put before a vLLM model runner: its steps are drafted and verified by the plugin."""

    drafter: Drafter
    tree_steps: TreeSteps | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Per request drafted for in this step: branches besides the trunk, and depth.
        self._drafted_trees: dict[str, tuple[int, int]] = {}
        self._step_probe: list[tuple[int, float]] = []
        with compat.all_logits_processors():
            super().__init__(*args, **kwargs)
        # Only the last pipeline rank samples; the others have nothing to do.
        if hasattr(self, "drafter"):
            lenience = self.drafter.config.verification.lenience
            self.rejection_sampler = SpecRejectionSampler(
                self.sampler, self.speculative_config, self.device, lenience=lenience
            )

    def _update_states(self, scheduler_output: Any) -> Any:
        cut_block_tables(self, scheduler_output)
        if hasattr(self, "drafter"):
            self.drafter.note_step(self, scheduler_output)
        return super()._update_states(scheduler_output)

    def initialize_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Lays out the KV cache, the draft's with it."""
        super().initialize_kv_cache(*args, **kwargs)
        if not hasattr(self, "drafter"):
            return
        if self.drafter.config.drafts_trees:
            layers = compat.attention_layers(self) - self.drafter.layers
            self.tree_steps = TreeSteps(TreeAttention(self, layers), self.drafter.engine is not None)
        self.drafter.bind(self)

    def profile_run(self, *args: Any, **kwargs: Any) -> None:
        """Runs the models once, for vLLM to see what memory they need, and to compile them."""
        if hasattr(self, "drafter"):
            self.drafter.warm_up(self.max_num_tokens)
            make_kernels(self.drafter.warm_up, self._most_kernels, DRAFT_SECONDS)
        super().profile_run(*args, **kwargs)

    @property
    def _is_alone(self) -> bool:
        """Whether no other rank must run the same steps."""
        return bool(self.parallel_config.world_size_across_dp == 1)

    @property
    def _most_kernels(self) -> int:
        """The largest step to make kernels for: all requests verify the longest draft."""
        if self.device.type != "cpu" or not self._is_alone or not hasattr(self, "drafter"):
            return 0
        step = self.scheduler_config.max_num_seqs * (1 + self.drafter.config.draft_length.tokens)
        return int(min(step, self.max_num_tokens))

    def make_kernels(self) -> None:
        """Runs the target's small sizes once, where that makes later ones quicker."""
        make_kernels(lambda size: compat.dummy_step(self, size), self._most_kernels, TARGET_SECONDS)

    def probe_steps(self) -> None:
        """Measures what steps of some sizes take, once everything is warm, if a policy wants to know."""
        if hasattr(self, "drafter") and self.drafter.config.draft_length.policy == "optimal":
            seconds = PROBE_SECONDS if self._is_alone else None
            self._step_probe = probe_steps(lambda size: compat.dummy_step(self, size), self.max_num_tokens, seconds)

    def _prepare_inputs(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_inputs(scheduler_output, *args, **kwargs)
        if self.tree_steps is not None:
            start = time.perf_counter()
            drafts = scheduler_output.scheduled_spec_decode_tokens
            request_ids = self.input_batch.req_ids
            trees = [self.drafter.tree(request_id, drafts.get(request_id, ())) for request_id in request_ids]
            self.tree_steps.prepare(self, scheduler_output, trees)
            self.drafter.counters.tree_seconds += time.perf_counter() - start
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
            start = time.perf_counter()
            slots = slot_mappings[self.tree_steps.attention.group]
            metadata = self.tree_steps.metadata(num_tokens_padded or num_tokens, slots)
            self.drafter.counters.tree_seconds += time.perf_counter() - start
            return metadata
        return super()._build_attention_metadata(
            num_tokens, *args, num_tokens_padded=num_tokens_padded, slot_mappings=slot_mappings, **kwargs
        )

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        start = time.perf_counter()
        batch = self.input_batch
        if spec_decode_metadata is None:
            spec_decode_metadata = SpecDecodeMetadata.make_dummy([[] for _ in batch.req_ids], logits.device)
        token_ids = _per_request(spec_decode_metadata)
        draft_probs = self.drafter.take_probs(batch.req_ids, token_ids, logits.device)
        steps, trees = self.tree_steps, None
        if steps is not None and steps.step is not None:
            trees = steps.trees
            self.drafter.counters.drafts_cut_for_memory += steps.num_left_out
            drafts = steps.without_left_out(spec_decode_metadata.draft_token_ids, NO_TOKEN)
            spec_decode_metadata.draft_token_ids = drafts
        output = self.rejection_sampler(spec_decode_metadata, draft_probs, logits, batch.sampling_metadata, trees)
        joining = time.perf_counter()
        self.drafter.counters.verification_seconds += joining - start
        if steps is not None and trees is not None:
            steps.join(self.rejection_sampler.verdict.nodes)
            self.drafter.counters.tree_seconds += time.perf_counter() - joining
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        # Rows of a prompt that is not through are sampled by vLLM and thrown away.
        unfinished = self.discard_request_mask.np[: self.input_batch.num_reqs].nonzero()[0]
        for i in unfinished.tolist():
            if (generator := self.input_batch.generators.get(i)) is not None:
                self.rejection_sampler.positions.advance(generator, -1)
        with compat.without_generators(self):
            return super()._bookkeeping_sync(*args, **kwargs)

    def _input_fits_in_drafter(self, common_attn_metadata: Any) -> bool:
        # vLLM stops drafting for everybody when one request nears its end; we cut each request's own K.
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
        """Drafts for the requests of this step, in batch order."""
        hidden = None
        if self.drafter.uses_states:
            hidden = sample_hidden_states[self.rejection_sampler.verdict.rows[:, -1]]
        plan = getattr(scheduler_output, DRAFT_TURNS, {})
        places, views = request_views(self, sampled_token_ids, self.drafter, plan, hidden)
        draft_token_ids: list[list[int]] = [[] for _ in sampled_token_ids]
        self._drafted_trees = {}
        for place, view, draft in zip(places, views, self.drafter.draft(views), strict=True):
            draft_token_ids[place] = draft.token_ids
            if draft.tree is not None and len(draft.tree.chains) > 1:
                self._drafted_trees[view.request_id] = (len(draft.tree.chains) - 1, draft.tree.depth)
        return draft_token_ids

    def sample_tokens(self, grammar_output: Any) -> Any:
        """vLLM's step from logits to tokens; sends the step's counters along."""
        output = super().sample_tokens(grammar_output)
        if hasattr(self, "drafter") and output is not None:
            setattr(output, STEP_COUNTERS, self.drafter.take_counters().to_payload())
            setattr(output, DRAFT_TREES, self._drafted_trees)
            setattr(output, DRAFT_SOURCES, self.drafter.sources)
            self._drafted_trees, self.drafter.sources = {}, {}
            if self._step_probe:
                setattr(output, STEP_PROBE, self._step_probe)
                self._step_probe = []
        return output


def _per_request(metadata: Any) -> list[list[int]]:
    tokens: torch.Tensor = metadata.draft_token_ids
    return [part.tolist() for part in tokens.cpu().split(metadata.num_draft_tokens)]
