"""Runs an EAGLE-3 head in vLLM's worker, in the target's block pool, on the target's hidden states."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vllm_spec_plugin.compat.draft_attention import PassBatch
from vllm_spec_plugin.compat.eagle3 import HeadPass, head_pass, head_vllm_config, share_embedding
from vllm_spec_plugin.compat.runner import aux_states
from vllm_spec_plugin.drafting.draft_engine import VllmDraftEngine
from vllm_spec_plugin.drafting.ranks import RanksDifferError
from vllm_spec_plugin.drafting.state_buffer import Span, StateBuffer
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.section import DraftWeights

# Tokens of a prompt's part that are computed at once without drafts; and, on average, of each request's text.
_COME_TOGETHER = 32


class HeadEngine(VllmDraftEngine):
    """Implements `Eagle3Engine`: a `DraftEngine` on hidden states.

    Attributes:
        aux_layers: ids of the target's layers whose hidden states the head takes.
        states: the target's hidden states of positions that the head has not computed.
    """

    # The entry at a position has the token after it.
    _shift = 1

    def __init__(self, vllm_config: Any, weights: DraftWeights) -> None:
        """Creates the head's configuration; see `VllmDraftEngine`."""
        super().__init__(vllm_config, weights)
        self._head = read_head(weights.model)
        self.aux_layers = self._head.config.aux_layers_of(vllm_config.model_config.get_total_num_hidden_layers())
        self.states = StateBuffer(vllm_config.scheduler_config.max_num_batched_tokens)
        # By row of a tree that the present step verifies: request, position after the text, states of the nodes.
        self._nodes: dict[int, tuple[str, int, torch.Tensor]] = {}

    def note_states(self, runner: Any, planned: Container[str], num_nodes: Mapping[int, int]) -> None:
        """Keeps the target's hidden states of the present step, before it is sampled; those of nodes for now.

        Requests that get no drafts are computed nevertheless, as later ones may find their blocks in the prefix cache:
        prompts at once, other tokens when many have come together.

        Args:
            runner: the runner.
            planned: ids of the requests that get drafts after the step.
            num_nodes: by row of the batch, the nodes of a tree with branches that the step verifies.
        """
        self._nodes = {}
        if (found := aux_states(runner)) is None:
            return
        states, spans = found
        if num_nodes:
            states, spans = self._without_nodes(states, spans, num_nodes)
        self.states.add(states, spans)
        # Of a tree, not now: an accepted branch's blocks, copied before the step, will replace the request's own.
        others = [(row, span[0]) for row, span in enumerate(spans) if span[0] not in planned and row not in num_nodes]
        if self.states.is_full(_COME_TOGETHER * len(spans)) or any(
            spans[row][2] >= _COME_TOGETHER for row, _ in others
        ):
            self._compute(others)

    def note_accepted(self, accepted: Mapping[int, Sequence[int]]) -> None:
        """Keeps the target's hidden states of accepted nodes, which follow the text.

        Args:
            accepted: by row of the batch, the nodes on the accepted path of the tree, first to last.
        """
        paths = [(*self._nodes[row], nodes) for row, nodes in accepted.items() if nodes and row in self._nodes]
        self._nodes = {}
        if paths:
            states = torch.cat([of_tree[list(nodes)] for _, _, of_tree, nodes in paths])
            self.states.add(states, [(request_id, first, len(nodes)) for request_id, first, _, nodes in paths])

    def _without_nodes(
        self, states: torch.Tensor, spans: Sequence[Span], num_nodes: Mapping[int, int]
    ) -> tuple[torch.Tensor, list[Span]]:
        """Sets the states of trees' nodes aside; returns the others and their spans."""
        texts, kept, start = [], [], 0
        for row, (request_id, first, count) in enumerate(spans):
            length = count - num_nodes.get(row, 0)
            texts.append(states[start : start + length])
            kept.append((request_id, first, length))
            if length < count:
                self._nodes[row] = request_id, first + length, states[start + length : start + count]
            start += count
        return torch.cat(texts), kept

    def _compute(self, requests: Sequence[tuple[int, str]]) -> None:
        """Computes all positions whose hidden states and next token are there, without drafts.

        Args:
            requests: row of the batch and id of each request.
        """
        chunks = []
        for row, request_id in requests:
            first, stop = self.states.span(request_id)
            stop = min(stop, int(self._runner.input_batch.num_tokens_no_spec[row]) - 1, self.max_len)
            text, tables = self._texts[row, : max(stop, 0)], self.block_tables(row)
            start = self.coverage.watermark(request_id, text, tables)
            if first <= start < stop:
                view = RequestView(request_id, text, 0, np.empty(0), point_mass=True, row=row)
                chunks.append(Chunk(view, start, stop, 0, tables))
        if chunks:
            try:
                with torch.inference_mode():
                    self.start(chunks, 0)
            except RanksDifferError:
                # Raised on all ranks, which then go on alike.
                self.coverage.reset()
                return
            for chunk in chunks:
                self.coverage.computed(chunk.request.request_id, chunk.start, chunk.stop, chunk.tables)

    def start(self, chunks: Sequence[Chunk], num_steps: int) -> torch.Tensor:
        """See `DraftEngine`."""
        spans = [(chunk.request.request_id, chunk.start, chunk.stop) for chunk in chunks]
        self._states = torch.cat([part for span in spans for part in self.states.take(*span)])
        self._is_first = True
        logits = super().start(chunks, num_steps)
        for request_id, _, stop in spans:
            self.states.drop_before(request_id, stop - 1)
        return logits

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `DraftEngine`."""
        self._states = self._states[: len(token_ids)]
        return super().step(token_ids)

    def branch(self, counts: Sequence[int]) -> None:
        """See `DraftEngine`; each sequence goes on from its request's hidden states."""
        super().branch(counts)
        self._states = self._states.repeat_interleave(torch.tensor(counts, device=self._states.device), 0)

    def keep(self, chosen: torch.Tensor) -> None:
        """See `DraftEngine`."""
        super().keep(chosen)
        self._states = self._states[chosen]

    def constrain(
        self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor, temperature: float | None
    ) -> torch.Tensor:
        """See `DraftEngine`; where a request allows no token of the head's vocabulary, all are equally likely."""
        constrained = super().constrain(logits, rows, drafts, temperature)
        if self._head.target_ids is None:
            return constrained
        # Finite: where another token is allowed, its probability is 0 all the same.
        return constrained.clamp(min=torch.finfo(constrained.dtype).min)

    def _config_of_draft(self, vllm_config: Any) -> Any:
        return head_vllm_config(vllm_config, self._model_config)

    def _pass_of(self, target: Any, model: Any, layers: dict[str, Any]) -> HeadPass:
        if not self._head.has_embedding:
            share_embedding(model, target)
        made: HeadPass = head_pass(self._vllm_config, model, layers)
        return made

    def _forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, batch: PassBatch
    ) -> torch.Tensor:
        self._pass.prepare(batch)
        if not self._chunks and len(self._pass.layers) == 1:
            self._pass.write_text(token_ids, positions, self._states)
            return self._states.new_empty(0, 1)
        logits, self._states = self._pass.run_head(token_ids, positions, rows, self._states, is_first=self._is_first)
        self._is_first = False
        return logits
