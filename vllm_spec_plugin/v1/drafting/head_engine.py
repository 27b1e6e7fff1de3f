"""Runs an EAGLE-3 head in vLLM's worker, in the target's block pool, on the target's hidden states."""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from vllm_spec_plugin.compat.runner import aux_states, step_spans
from vllm_spec_plugin.proposers.base import NO_DRAFT, RequestView
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.section import DraftWeights
from vllm_spec_plugin.v1.compat.draft_attention import PassBatch
from vllm_spec_plugin.v1.compat.eagle3 import head_pass, head_vllm_config, share_embedding
from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine
from vllm_spec_plugin.v1.drafting.ranks import RanksDifferError
from vllm_spec_plugin.v1.drafting.state_buffer import Span, StateBuffer
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, GPUModelRunner, VllmConfig
    from vllm_spec_plugin.v1.compat.cpu_head_pass import CPUHeadPass
    from vllm_spec_plugin.v1.compat.eagle3 import HeadPass

# Tokens of a prompt's part that are computed at once without drafts; and, on average, of each request's text. Not more
# than a block: later requests compute the last block that they find, and what is left when a text ends lies in it.
_MIN_BATCH = 32


class HeadEngine(VllmDraftEngine):
    """Implements `Eagle3Engine`: a `DraftEngine` on hidden states.

    Attributes:
        aux_layers: ids of the target's layers whose hidden states the head takes.
        states: the target's hidden states of positions that the head has not computed.
    """

    _pass: "HeadPass | CPUHeadPass"
    # The entry at a position has the token after it.
    _shift = 1

    def __init__(self, vllm_config: "VllmConfig", weights: DraftWeights) -> None:
        """Creates the head's configuration; see `VllmDraftEngine`."""
        super().__init__(vllm_config, weights)
        self._head = read_head(weights.model)
        self.aux_layers = self._head.config.aux_layers_of(vllm_config.model_config.get_total_num_hidden_layers())
        scheduler = vllm_config.scheduler_config
        self._step_tokens: int = scheduler.max_num_batched_tokens
        # Text that is left to come together, that of steps until it has, and the last position of each request.
        self._num_rows: int = 5 * self._step_tokens // 2 + scheduler.max_num_seqs
        # Tokens of the steps since text was last computed without drafts.
        self._num_since = 0

    def load(self, target: torch.nn.Module) -> None:
        """See `VllmDraftEngine`; the memory for hidden states is part of what vLLM then measures."""
        super().load(target)
        size = self._head.config.target_hidden_size * len(self.aux_layers)
        dtype, device = self._vllm_config.model_config.dtype, self._vllm_config.device_config.device
        assert isinstance(dtype, torch.dtype)
        self.states = StateBuffer(torch.empty(self._num_rows, size, dtype=dtype, device=device), self.max_len)

    def note_states(self, runner: "GPUModelRunner", planned: Container[str]) -> bool:
        """Keeps the target's hidden states of the present step, before it is sampled.

        Texts that the head did not compute in the step before are computed without drafts when many tokens have come
        together, parts of prompts at once: later requests may find their blocks in the prefix cache, a proposer before
        the head may have drafted, and hidden states cannot be kept for long.

        Args:
            runner: the runner.
            planned: ids of the requests that get drafts after the step.

        Returns:
            Whether all ranks computed the same.
        """
        spans = step_spans(runner)
        if not spans:
            return True
        # By the scheduler's plan alone, so that ranks compute in the same steps.
        batch = min(_MIN_BATCH, *self._sizes)
        enough = max(min(batch, self._step_tokens // len(spans)), 1)
        self._num_since += sum([count for _, _, count in spans])
        is_due = self._num_since >= enough * len(spans) or any(
            count >= batch and request_id not in planned for request_id, _, count in spans
        )
        if is_due:
            self._num_since = sum([count for request_id, _, count in spans if request_id in planned])
        try:
            self.states.add(aux_states(runner), spans)
            if is_due:
                self._compute(spans, planned, enough // 2)
        except Exception:
            if is_due and self.ranks is not None:
                self.ranks.note_fault()
                self._agree(has_fault=True)
            raise
        return not is_due or self._agree(has_fault=False)

    def _agree(self, *, has_fault: bool) -> bool:
        """Whether all ranks have computed the same, without a fault; otherwise nothing counts as computed."""
        if self.ranks is None or self.ranks.at_end([NO_DRAFT] if has_fault else []):
            return True
        self.coverage.reset()
        return False

    def _compute(self, spans: Sequence[Span], planned: Container[str], at_least: int) -> None:
        """Computes all positions whose hidden states and next token are there, without drafts.

        Left out are requests for which the head may draft in this step, having drafted in the one before.

        Args:
            spans: text tokens of the step.
            planned: ids of the requests that get drafts after the step.
            at_least: minimum tokens of a text; fewer wait for more.
        """
        chunks: list[TextChunk] = []
        completing_now: set[int] = set()
        for row, (request_id, at, _) in enumerate(spans):
            first, stop = self.states.span(request_id)
            stop = min(stop, int(self._runner.input_batch.num_tokens_no_spec[row]) - 1)
            # The last position that the head computed with drafts is kept.
            if stop - first < max(at_least, 1) or (request_id in planned and at - first <= 1):
                continue
            text, tables = self._texts[row, :stop], self.block_tables(row)
            start = self.coverage.watermark(request_id, text, tables, completing_now)
            if start < first:
                # Blocks before it were found in the prefix cache; those of this step are not computed yet.
                if at > first:
                    self.states.lose(request_id)
                continue
            if start < stop:
                view = RequestView(request_id, text[:stop], 0, np.empty(0), point_mass=True, row=row)
                completing_now.update(self.coverage.blocks_filled(start, stop, tables))
                chunks.append(TextChunk(view, start, stop, 0, tables))
        if not chunks:
            return
        try:
            with torch.inference_mode():
                self.start(chunks, 0)
        except RanksDifferError:
            # Raised on all ranks, which then go on alike.
            return
        for chunk in chunks:
            self.coverage.computed(chunk.request.request_id, chunk.start, chunk.stop, chunk.tables)
            self.states.drop_before(chunk.request.request_id, chunk.stop - 1)

    def start(self, chunks: Sequence[TextChunk], num_steps: int) -> torch.Tensor:
        """See `DraftEngine`."""
        self._states = self.states.take([(c.request.request_id, c.start, c.stop - c.start) for c in chunks])
        self._is_first, self._drafts = True, any(chunk.num_draft_tokens for chunk in chunks)
        return super().start(chunks, num_steps)

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `DraftEngine`."""
        self._states = self._states[: len(token_ids)]
        return super().step(token_ids)

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
        """See `DraftEngine`; where a request allows no token of the head's vocabulary, all are equally likely."""
        constrained = super().constrain(logits, rows, drafts)
        if self._head.target_ids is None:
            return constrained
        # Finite: where another token is allowed, its probability is 0 all the same.
        return constrained.clamp(min=torch.finfo(constrained.dtype).min)

    def _config_of_draft(self, vllm_config: "VllmConfig") -> "VllmConfig":
        return head_vllm_config(vllm_config, self.model_config)

    def _pass_of(
        self, target: torch.nn.Module, model: torch.nn.Module, layers: dict[str, "Attention"]
    ) -> "HeadPass | CPUHeadPass":
        if not self._head.has_embedding:
            share_embedding(model, target)
        return head_pass(self._vllm_config, model, layers)

    def _forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, batch: PassBatch
    ) -> torch.Tensor:
        self._pass.prepare(batch)
        if not self._drafts and len(self._pass.layers) == 1:
            self._pass.write_text(token_ids, positions, self._states)
            return self._states.new_empty(0, 1)
        logits, self._states = self._pass.run_head(token_ids, positions, rows, self._states, is_first=self._is_first)
        self._is_first = False
        return logits
