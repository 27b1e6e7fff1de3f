"""Drafting with a small model: Leviathan et al. (2023), Algorithm 1, lines 1-4, over a ragged batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.draft_model.branching import GrowingBranches
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk, Limits, plan_catch_up
from vllm_spec_plugin.proposers.draft_model.engine import DraftEngine
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings, GrowingDrafts
from vllm_spec_plugin.proposers.node_order import NodeOrder
from vllm_spec_plugin.verification.topology import Topology, chain


class DraftModelProposer:
    """Asks a small model what comes next.

    One pass computes what the draft has not seen of each text, usually the one or two tokens since the
    last step; then one pass per further draft token, over the requests whose K is not reached. A request
    for K drafts takes part in K passes.

    Where any of n requests that are drafted for is sampled, q takes n * K * vocab_size * 4 bytes until it is
    verified; where all are greedy, nothing.

    With `branches` it follows several drafts per request at once, and gives them as a tree: of n tokens the first n
    nodes by path probability, in as many passes as the deepest of them takes.

    Attributes:
        num_siblings: most tokens that are drawn for the same place.
    """

    def __init__(self, engine: DraftEngine, settings: DraftSettings) -> None:
        """Takes the model and how to use it."""
        self._engine = engine
        self._settings = settings
        self._tree = NodeOrder.of_branches(settings.branches).tree
        self.num_siblings = max(settings.branches, default=1)

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request; empty where K, memory or the draft's context leave none."""
        trees = {}
        if self._settings.branches:
            trees = {request.request_id: self._shape(request) for request in requests}
            # From here on K is the depth of a tree.
            requests = [replace(r, num_draft_tokens=trees[r.request_id].depth) for r in requests]
        coverage = self._engine.coverage
        limits = Limits(self._settings.catch_up_tokens, self._engine.max_len)
        chunks = plan_catch_up(requests, coverage, self._engine.block_tables, limits)
        if not chunks:
            return [NO_DRAFT] * len(requests)
        drafts = self._draft(chunks, trees)
        drafts += [(NO_DRAFT, [])] * (len(chunks) - len(drafts))
        answer = {}
        for chunk, (draft, fed) in zip(chunks, drafts, strict=True):
            request_id = chunk.request.request_id
            answer[request_id] = draft
            coverage.computed(request_id, chunk.start, chunk.stop, chunk.tables, fed)
        return [answer.get(request.request_id, NO_DRAFT) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark."""
        self._engine.coverage.forget(request_id)

    def reset(self) -> None:
        """Drops all watermarks and computed blocks."""
        self._engine.coverage.reset()

    def _shape(self, request: RequestView) -> Topology:
        """The request's draft if it has the blocks for it."""
        if request.chain_only:
            return chain(min(request.num_draft_tokens, request.depth, self._tree.depth))
        return self._tree.first(request.num_draft_tokens).within(request.depth)

    def _draft(self, chunks: list[Chunk], trees: Mapping[str, Topology]) -> list[tuple[Draft, list[int]]]:
        """Per chunk that wants drafts: its draft, and which of its tokens the draft model has been fed."""
        engine, settings = self._engine, self._settings
        lengths = [chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens]
        logits = engine.start(chunks, max(lengths, default=1) - 1)
        if not lengths:
            return []
        requests = [chunk.request for chunk in chunks[: len(lengths)]]
        if settings.branches:
            shapes = [trees[r.request_id].within(length) for r, length in zip(requests, lengths, strict=True)]
            if any(len(shape.chains) > 1 for shape in shapes):
                return self._draft_branches(requests, shapes, logits)
        batch = GrowingDrafts(requests, lengths, settings, logits.device)
        while batch.lengths:
            sure = batch.grow(engine.constrain(logits, batch.rows, batch.tokens, settings.draft_temperature))
            if sure is not None:
                engine.keep(sure)
            if batch.lengths:
                logits = engine.step(batch.last)
        return batch.finish()

    def _draft_branches(
        self, requests: Sequence[RequestView], shapes: Sequence[Topology], logits: torch.Tensor
    ) -> list[tuple[Draft, list[int]]]:
        engine, settings = self._engine, self._settings
        trees = [
            shape if len(shape.chains) < 2 else shape.narrowed(engine.num_branches(request.row, shape.depth))
            for request, shape in zip(requests, shapes, strict=True)
        ]
        draws = settings.draft_sampling == "probabilistic"
        batch = GrowingBranches(requests, trees, draws, logits.device)
        _, rows, drafts = batch.parents()
        batch.grow(engine.constrain(logits, rows, drafts, settings.draft_temperature))
        if not batch.is_done:
            engine.branch(batch.counts)
        while not batch.is_done:
            if batch.going_on is not None:
                engine.keep(batch.going_on)
            logits = engine.step(batch.last)
            sequences, rows, drafts = batch.parents()
            batch.grow(engine.constrain(logits[sequences], rows, drafts, settings.draft_temperature))
        return batch.finish()
