"""Drafts chains and trees with Medusa heads (Cai et al., arXiv 2401.10774), all tokens at once."""

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.draft_tokens import draw_siblings
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.verification.topology import Topology, chain


class StatesEngine(Protocol):
    """Applies the sampling pipelines of the current step's requests."""

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Applies the requests' sampling pipelines, with the text only as context.

        Args:
            logits: [n, vocab_size].
            rows: [n] int64, rows of the batch.

        Returns:
            [n, vocab_size] float32; softmax of it is q for sampled requests, its argmax the token of greedy ones.
        """
        ...


class MedusaProposer:
    """Drafts each head's most likely tokens, or sampled ones, as chains or trees.

    A head's distribution does not depend on earlier draft tokens, so all parents have the same children: siblings
    differ by rank, the order of probability or of sampling without replacement. Its pipeline does not either:
    penalties and minimum lengths count the text only.

    Logits take num_heads * n * vocab_size * 4 bytes for the n requests of a step while it drafts. With sampling, q
    takes nodes * vocab_size * 4 bytes per request until it is verified.

    Attributes:
        num_siblings: maximum siblings sampled for one parent.
        weight_bytes: bytes of the heads' weights.
    """

    def __init__(self, heads: MedusaHeads, engine: StatesEngine, tree: Topology, *, draws: bool) -> None:
        """Takes the heads and the shape of their drafts.

        Args:
            heads: at least as many as the tree's depth.
            engine: engine of the worker.
            tree: shape of the longest draft; a draft of n tokens has its first n nodes.
            draws: whether drafts of sampled requests are sampled from the heads' distributions.
        """
        self._heads = heads
        self._engine = engine
        self._tree = tree
        self._draws = draws
        self.num_siblings = max(tree.widths) if draws else 1
        self.weight_bytes = sum(weight.nbytes for weight in heads.parameters())

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request; empty if K is 0 or there is no hidden state."""
        asked = [request for request in requests if request.num_draft_tokens and request.hidden is not None]
        if not asked:
            return [NO_DRAFT] * len(requests)
        drafts = {request.request_id: draft for request, draft in zip(asked, self._draft(asked), strict=True)}
        return [drafts.get(request.request_id, NO_DRAFT) for request in requests]

    def forget(self, request_id: str) -> None:
        """Keeps no state per request."""

    @torch.inference_mode()
    def _draft(self, requests: list[RequestView]) -> list[Draft]:
        trees = [self._fitting(request) for request in requests]
        depth = max(tree.depth for tree in trees)
        hidden = torch.stack([request.hidden for request in requests if request.hidden is not None])
        logits = self._heads(hidden, depth)
        rows = torch.tensor([request.row for request in requests], device=logits.device)
        logits = self._engine.constrain(logits.flatten(0, 1), rows.repeat(depth)).view(logits.shape)
        drawn = [i for i, request in enumerate(requests) if self._draws and not request.point_mass]
        drafts = [NO_DRAFT] * len(requests)
        if len(drawn) < len(requests):
            certain = [i for i in range(len(requests)) if i not in set(drawn)] if drawn else range(len(requests))
            ranked = _most_likely(logits, _widths([trees[i] for i in certain]))
            for i in certain:
                drafts[i] = Draft([ranked[d - 1][i][path[-1]] for path, d in _nodes(trees[i])], None, trees[i])
        if drawn:
            for i, draft in zip(drawn, self._drawn(logits, requests, trees, drawn), strict=True):
                drafts[i] = draft
        return drafts

    def _fitting(self, request: RequestView) -> Topology:
        if request.chain_only:
            return chain(min(self._tree.depth, request.depth, request.num_draft_tokens))
        return self._tree.first(request.num_draft_tokens).within(request.depth)

    def _drawn(
        self, logits: torch.Tensor, requests: list[RequestView], trees: list[Topology], drawn: list[int]
    ) -> list[Draft]:
        """Samples the drafts of the requests with indices `drawn`."""
        tokens, probs = [], []
        for head, width in enumerate(_widths([trees[i] for i in drawn])):
            uniforms = np.zeros((len(drawn), width))
            for row, i in zip(uniforms, drawn, strict=True):
                if head < trees[i].depth:
                    row[:] = requests[i].uniforms_of_siblings(head, width)
            chosen, q = draw_siblings(logits[head, drawn], torch.from_numpy(uniforms).to(logits.device))
            tokens.append(chosen.tolist())
            probs.append(q)
        drafts = []
        for at, i in enumerate(drawn):
            nodes = _nodes(trees[i])
            q = torch.stack([probs[d - 1][at, path[-1]] for path, d in nodes])
            drafts.append(Draft([tokens[d - 1][at][path[-1]] for path, d in nodes], q, trees[i]))
        return drafts


def _widths(trees: Sequence[Topology]) -> list[int]:
    """Returns per head the maximum number of its tokens in any tree."""
    return [max(widths) for widths in itertools.zip_longest(*(tree.widths for tree in trees), fillvalue=0)]


def _most_likely(logits: torch.Tensor, widths: Sequence[int]) -> list[list[list[int]]]:
    """Returns per head and request the `widths[head]` most likely tokens, in descending order."""
    if max(widths) == 1:
        return [[[token] for token in of_head] for of_head in logits[: len(widths)].argmax(-1).tolist()]
    return [of_head.topk(width).indices.tolist() for of_head, width in zip(logits, widths, strict=False)]


def _nodes(tree: Topology) -> list[tuple[tuple[int, ...], int]]:
    return list(zip(tree.choices, tree.depths, strict=True))
