"""Drafting with a small model: Leviathan et al. (2023), Algorithm 1, lines 1-4, over a ragged batch."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.draft_model.branching import GrowingBranches, depth_within
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk, Limits, plan_catch_up
from vllm_spec_plugin.proposers.draft_model.engine import DraftEngine
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings, GrowingDrafts


class DraftModelProposer:
    """Asks a small model what comes next.

    One pass computes what the draft has not seen of each text, usually the one or two tokens since the
    last step; then one pass per further draft token, over the requests whose K is not reached. A request
    for K drafts takes part in K passes.

    Where any of n requests that are drafted for is sampled, q takes n * K * vocab_size * 4 bytes until it is
    verified; where all are greedy, nothing.

    With `branches` it follows several drafts per request at once, and gives them as a tree.

    Attributes:
        num_siblings: most tokens that are drawn for the same place.
    """

    def __init__(self, engine: DraftEngine, settings: DraftSettings) -> None:
        """Takes the model and how to use it."""
        self._engine = engine
        self._settings = settings
        self.num_siblings = max(settings.branches, default=1)

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request; empty where K, memory or the draft's context leave none."""
        if self._settings.branches:
            # From here on K is the depth of a tree.
            requests = [replace(request, num_draft_tokens=self._depth(request)) for request in requests]
        coverage = self._engine.coverage
        limits = Limits(self._settings.catch_up_tokens, self._engine.max_len)
        chunks = plan_catch_up(requests, coverage, self._engine.block_table, limits)
        if not chunks:
            return [NO_DRAFT] * len(requests)
        drafts = self._draft(chunks)
        answer = {}
        for i, chunk in enumerate(chunks):
            draft, fed = drafts[i] if i < len(drafts) else (NO_DRAFT, [])
            answer[chunk.request.request_id] = draft
            blocks = self._engine.block_table(chunk.request.row)
            coverage.computed(chunk.request.request_id, chunk.start, chunk.stop, blocks, fed)
        return [answer.get(request.request_id, NO_DRAFT) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the request's watermark."""
        self._engine.coverage.forget(request_id)

    def _depth(self, request: RequestView) -> int:
        """Of its tree."""
        branches, most = self._settings.branches, request.num_draft_tokens
        return min(most if request.chain_only else depth_within(branches, most), request.depth, len(branches))

    def _draft(self, chunks: list[Chunk]) -> list[tuple[Draft, list[int]]]:
        """Per chunk that wants drafts: its draft, and which of its tokens the draft model has been fed."""
        engine, settings = self._engine, self._settings
        lengths = [chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens]
        logits = engine.start(chunks, max(lengths, default=1) - 1)
        if not lengths:
            return []
        requests = [chunk.request for chunk in chunks[: len(lengths)]]
        if settings.branches:
            return self._draft_branches(requests, lengths, logits)
        batch = GrowingDrafts(requests, lengths, settings, logits.device)
        while batch.lengths:
            sure = batch.grow(engine.constrain(logits, batch.rows, batch.tokens, settings.draft_temperature))
            if sure is not None:
                engine.keep(sure)
            if batch.lengths:
                logits = engine.step(batch.last)
        return batch.finish()

    def _draft_branches(
        self, requests: list[RequestView], lengths: list[int], logits: torch.Tensor
    ) -> list[tuple[Draft, list[int]]]:
        engine, settings = self._engine, self._settings
        counts = [
            1 if request.chain_only else engine.num_branches(request.row, length)
            for request, length in zip(requests, lengths, strict=True)
        ]
        draws = settings.draft_sampling == "probabilistic"
        batch = GrowingBranches(requests, lengths, counts, settings.branches, draws, logits.device)
        sequences, rows, drafts = batch.parents()
        batch.grow(engine.constrain(logits, rows, drafts, settings.draft_temperature))
        if not batch.is_done:
            engine.branch(batch.counts)
        while not batch.is_done:
            logits = engine.step(batch.last)
            sequences, rows, drafts = batch.parents()
            batch.grow(engine.constrain(logits[sequences], rows, drafts, settings.draft_temperature))
        return batch.finish()
