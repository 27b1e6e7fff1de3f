"""Drafts trees with a draft model, in torch alone: SpecInfer's prefix trees (Miao et al., arXiv 2305.09781).

The draft model computes each chain of a tree as one sequence from the end of the text on, up to the token before its
last. Chains with a common prefix compute it separately.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.draw import draw_siblings
from vllm_spec_plugin.proposers.node_order import NodeOrder
from vllm_spec_plugin.verification.topology import Path, Topology, by_priority
from vllm_spec_plugin.verification.tree_rows import TreePieces


@dataclass(frozen=True)
class _Level:
    """The choice of tokens at one depth, for all requests of a batch.

    Attributes:
        owners: request of each token that gets children.
        parents: [n], a sequence through each of these tokens; at the first level the request.
        width: children chosen per token, used or not.
        children: [m], indices of the used children among n * width.
        nodes: request and node of each child.
        going_on: [k], earlier sequences that continue with one of the children.
        newest: [k], index of that child among the m.
    """

    owners: tuple[int, ...]
    parents: torch.Tensor
    width: int
    children: torch.Tensor
    nodes: tuple[tuple[int, int], ...]
    going_on: torch.Tensor
    newest: torch.Tensor


@dataclass(frozen=True)
class _Plan:
    """The plan for drafting a batch of trees.

    Attributes:
        counts: sequences per request that the model computes: chains of more than one token.
        levels: choices of tokens, by depth.
    """

    counts: tuple[int, ...]
    levels: tuple[_Level, ...]


# Batches repeat, above all small ones.
@functools.lru_cache(maxsize=256)
def _plan(trees: tuple[Topology, ...], device: torch.device) -> _Plan:
    chains = [[chain for chain in tree.chains if len(chain) > 1] for tree in trees]
    # Sequences: a request, and the nodes on its path. At first one per request, at the end of its text.
    live: list[tuple[int, tuple[int, ...]]] = [(i, ()) for i in range(len(trees))]
    levels = []
    for depth in range(max(tree.depth for tree in trees)):
        parents: dict[tuple[int, int], int] = {}
        for at, (i, chain) in enumerate(live):
            if depth < trees[i].depth:
                parents.setdefault((i, chain[depth - 1] if depth else -1), at)
        children: dict[tuple[int, int], int] = {}
        width = 0
        for at, (i, parent) in enumerate(parents):
            for node in TreePieces.of(trees[i]).successors[parent + 1]:
                children[i, node] = at
                width = max(width, trees[i].choices[node][-1] + 1)
        flat = [at * width + trees[i].choices[node][-1] for (i, node), at in children.items()]
        before = live
        if not depth:
            live = [(i, chain) for i, of_request in enumerate(chains) for chain in of_request]
            going_on = list(range(len(live)))
        else:
            going_on = [at for at, (_, chain) in enumerate(before) if len(chain) > depth + 1]
            live = [before[at] for at in going_on]
        index_of = {node: at for at, node in enumerate(children)}
        newest = [index_of[i, chain[depth]] for i, chain in live]
        index = [
            torch.tensor(values, dtype=torch.int64, device=device)
            for values in (list(parents.values()), flat, going_on, newest)
        ]
        owners = tuple(i for i, _ in parents)
        levels.append(_Level(owners, index[0], width, index[1], tuple(children), index[2], index[3]))
    return _Plan(tuple(map(len, chains)), tuple(levels))


class GrowingBranches:
    """Chooses the tokens of draft trees, depth by depth.

    Sequences are the trees' chains of more than one token, request by request.

    Attributes:
        counts: number of sequences per request.
        last: [n] int64, the newest token of each sequence that continues.
        going_on: [n] int64, indices of these among the sequences before the latest `grow`; None if all.
    """

    last: torch.Tensor
    going_on: torch.Tensor | None

    def __init__(
        self,
        requests: Sequence[RequestView],
        trees: Sequence[Topology],
        draws: bool,
        device: torch.device,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """Starts without draft tokens.

        Args:
            requests: requests to draft for.
            trees: shape of each request's draft, at least one node.
            draws: whether drafts of sampled requests are sampled.
            device: device of the logits.
            sizes: number of nodes that each draft keeps, the most probable ones; not with `draws`. None keeps all.
        """
        self._requests, self._trees, self._sizes = requests, tuple(trees), sizes
        self._plan = _plan(self._trees, device)
        self.counts = self._plan.counts
        self._drawn = [draws and not request.point_mass for request in requests]
        self._device = device
        self._depth = 0
        # [tokens so far, sequences].
        self._drafts = torch.empty(0, len(requests), dtype=torch.int64, device=device)
        # Per depth the tokens of its nodes, q of those that were drawn, and the model's probability of each token.
        self._tokens: list[torch.Tensor] = []
        self._probs: list[torch.Tensor] = []
        self._confidence: list[torch.Tensor] = []

    @property
    def is_done(self) -> bool:
        """Whether all trees are complete."""
        return self._depth == len(self._plan.levels)

    def parents(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Finds the tokens that get children.

        Returns:
            [n] int64, index of a computed sequence through each; [n] int64, rows of the batch; [n, tokens so far]
            int64, draft tokens up to each.
        """
        level = self._plan.levels[self._depth]
        rows = torch.tensor([self._requests[i].row for i in level.owners], device=self._device)
        return level.parents, rows, self._drafts[:, level.parents].T

    def grow(self, logits: torch.Tensor) -> None:
        """Chooses the children of all parents.

        Args:
            logits: [n, vocab_size], in the order of `parents`, after the requests' sampling pipelines.
        """
        depth = self._depth
        level = self._plan.levels[depth]
        drawn = [self._drawn[i] for i in level.owners]
        if all(drawn):
            tokens, probs = self._draw(logits, level, drawn)
        else:
            width = level.width
            tokens = logits.topk(width).indices if width > 1 else logits.argmax(-1, keepdim=True)
            if any(drawn):
                chosen, probs = self._draw(logits, level, drawn)
                tokens = torch.where(torch.tensor(drawn, device=self._device)[:, None], chosen, tokens)
        if self._sizes is not None:
            self._confidence.append(logits.log_softmax(-1).gather(1, tokens).flatten()[level.children].exp())
        tokens = tokens.flatten()[level.children]
        self._tokens.append(tokens)
        if any(drawn):
            of_drawn = [at for at, (i, _) in enumerate(level.nodes) if self._drawn[i]]
            kept = level.children if len(of_drawn) == len(level.nodes) else level.children[of_drawn]
            self._probs.append(probs.flatten(0, 1)[kept])
        self._depth += 1
        self.last = tokens[level.newest]
        self.going_on = None
        if depth:
            if len(level.going_on) < self._drafts.shape[1]:
                self.going_on = level.going_on
            self._drafts = torch.cat([self._drafts[:, level.going_on], self.last[None]])
        else:
            self._drafts = self.last[None]

    def finish(self) -> list[tuple[Draft, list[int]]]:
        """Returns each request's draft, and the draft tokens of its first sequence that the model has computed."""
        tokens = [[0] * tree.num_nodes for tree in self._trees]
        # Rows of q, all depths together.
        rows = [[0] * tree.num_nodes for tree in self._trees]
        num_rows = 0
        chosen = torch.cat(self._tokens).tolist()
        for at, (i, node) in enumerate(node for level in self._plan.levels for node in level.nodes):
            tokens[i][node] = chosen[at]
            if self._drawn[i]:
                rows[i][node] = num_rows
                num_rows += 1
        probs = torch.cat(self._probs) if self._probs else None
        confidence = self._confidence_by_node()
        result = []
        for i, tree in enumerate(self._trees):
            q = probs[rows[i]] if probs is not None and self._drawn[i] else None
            first = next((chain for chain in tree.chains if len(chain) > 1), ())
            draft = Draft(tokens[i], q, tree)
            if self._sizes is not None:
                draft = _most_probable(tree, tokens[i], confidence[i], self._sizes[i])
            result.append((draft, [tokens[i][node] for node in first[:-1]]))
        return result

    def _confidence_by_node(self) -> list[list[float]]:
        """Returns the model's probability of each node's token after its parent, by request."""
        found = [[0.0] * tree.num_nodes for tree in self._trees]
        if self._confidence:
            nodes = (node for level in self._plan.levels for node in level.nodes)
            for (i, node), value in zip(nodes, torch.cat(self._confidence).tolist(), strict=True):
                found[i][node] = value
        return found

    def _draw(self, logits: torch.Tensor, level: _Level, drawn: Sequence[bool]) -> tuple[torch.Tensor, torch.Tensor]:
        uniforms = np.zeros((len(drawn), level.width))
        for row, i, is_drawn in zip(uniforms, level.owners, drawn, strict=True):
            if is_drawn:
                row[:] = self._requests[i].uniforms_of_siblings(self._depth, level.width)
        return draw_siblings(logits, torch.from_numpy(uniforms).to(self._device))


def _most_probable(tree: Topology, tokens: Sequence[int], confidence: Sequence[float], size: int) -> Draft:
    """Returns the draft of the `size` nodes with the highest path probability: EAGLE-2's trees (arXiv 2406.16858).

    Their tokens are point masses, so the shape depends on no random number.
    """
    path_probability: dict[Path, float] = {}
    for path, own in zip(tree.choices, confidence, strict=True):
        path_probability[path] = own * path_probability.get(path[:-1], 1.0)
    order = NodeOrder.by_probability(tree.choices, path_probability.__getitem__)
    kept = by_priority(order.paths[:size])
    token_of = dict(zip(tree.choices, tokens, strict=True))
    return Draft([token_of[path] for path in kept.choices], None, kept)
