"""Drafts with a small model: Leviathan et al. (2023), Algorithm 1, lines 1-4, over a ragged batch."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.draft_model.branching import GrowingBranches
from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk, Limits, plan_catch_up
from vllm_spec_plugin.proposers.draft_model.engine import DraftEngine
from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings, GrowingDrafts
from vllm_spec_plugin.proposers.node_order import NodeOrder
from vllm_spec_plugin.verification.topology import Topology, chain


class Wanted(NamedTuple):
    """A request's draft, as planned.

    Attributes:
        tree: the nodes to compute.
        num_nodes: number of nodes to draft; by confidence the most probable ones of `tree`.
    """

    tree: Topology
    num_nodes: int

    def within(self, depth: int) -> "Wanted":
        """Returns the draft without the nodes deeper than `depth`."""
        return self._replace(tree=self.tree.within(depth))


class DraftModelProposer:
    """Drafts with a small model.

    One pass computes the missing tokens of each text, usually the one or two since the last step. Then one pass per
    further draft token computes the requests with longer drafts. A request with K draft tokens takes part in K passes.

    With any sampled request among n, q takes n * K * vocab_size * 4 bytes until it is verified; with greedy ones only,
    nothing.

    With `branches` a draft is a tree: a draft of n tokens has the first n nodes by path probability, and takes as many
    passes as its depth. With `by_confidence` all nodes up to depth n are drafted, and the n that the model gives the
    highest path probability are kept.

    Attributes:
        num_siblings: maximum tokens sampled for one position.
    """

    def __init__(self, engine: DraftEngine, settings: DraftSettings) -> None:
        """Takes the engine of the model and the settings."""
        self._engine = engine
        self._settings = settings
        self._tree = NodeOrder.of_branches(settings.branches).tree
        self.num_siblings = max(settings.branches, default=1)

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request; empty if K, memory or the draft model's context allow none."""
        trees: dict[str, Wanted] = {}
        if self._settings.branches:
            trees = {r.request_id: Wanted(self._shape(r), r.num_draft_tokens) for r in requests}
            # From here on K is the depth of a tree.
            requests = [r._replace(num_draft_tokens=trees[r.request_id].tree.depth) for r in requests]
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
        """Drops the request's computed tokens."""
        self._engine.coverage.forget(request_id)

    def reset(self) -> None:
        """Drops all computed tokens and blocks."""
        self._engine.coverage.reset()

    def _shape(self, request: RequestView) -> Topology:
        """Returns the shape of the request's draft, limited by its blocks."""
        if request.chain_only:
            return chain(min(request.num_draft_tokens, request.depth, self._tree.depth))
        if self._settings.by_confidence:
            return self._tree.within(min(request.num_draft_tokens, request.depth))
        return self._tree.first(request.num_draft_tokens).within(request.depth)

    def _draft(self, chunks: list[Chunk], trees: Mapping[str, Wanted]) -> list[tuple[Draft, list[int]]]:
        """Returns for each chunk with drafts its draft, and the draft tokens that the model has computed."""
        engine, settings = self._engine, self._settings
        lengths = [chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens]
        logits = engine.start(chunks, max(lengths, default=1) - 1)
        if not lengths:
            return []
        requests = [chunk.request for chunk in chunks[: len(lengths)]]
        if settings.branches:
            wanted = [trees[r.request_id].within(length) for r, length in zip(requests, lengths, strict=True)]
            if any(len(tree.chains) > 1 for tree, _ in wanted):
                return self._draft_branches(requests, wanted, logits)
        batch = GrowingDrafts(requests, lengths, settings, logits.device)
        while batch.lengths:
            sure = batch.grow(engine.constrain(logits, batch.rows, batch.tokens, settings.draft_temperature))
            if sure is not None:
                engine.keep(sure)
            if batch.lengths:
                logits = engine.step(batch.last)
        return batch.finish()

    def _draft_branches(
        self, requests: Sequence[RequestView], wanted: Sequence[Wanted], logits: torch.Tensor
    ) -> list[tuple[Draft, list[int]]]:
        engine, settings = self._engine, self._settings
        trees = [
            tree if len(tree.chains) < 2 else tree.narrowed(engine.num_branches(request.row, tree.depth))
            for request, (tree, _) in zip(requests, wanted, strict=True)
        ]
        draws = settings.draft_sampling == "probabilistic"
        sizes = [size for _, size in wanted] if settings.by_confidence else None
        batch = GrowingBranches(requests, trees, draws, logits.device, sizes)
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
