"""Verifies trees by iterative speculative sampling over siblings, in torch alone.

SpecInfer's multi-step speculative sampling (Miao et al., 2024), without replacement as in Sequoia (Chen et al., 2024),
over a batch of trees of any shapes. Operations over the vocabulary are batched by level; the walk down a tree takes a
few integers per request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from vllm_spec_plugin.v1.verification.chain import NO_TOKEN
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.v1.verification.tree_rows import TreePieces, TreeRows
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, token_probs


@dataclass(frozen=True)
class TreeVerdict:
    """Result of a verification.

    Attributes:
        token_ids: [batch_size, rows.width] int32, per request the accepted tokens, then the recovered or bonus token,
            then `NO_TOKEN`.
        rows: [batch_size, rows.width] int64, row that decided each token; padded with the last one.
        nodes: [batch_size] int64, index of the last accepted node in its request's tree; -1 for none.
    """

    token_ids: torch.Tensor
    rows: torch.Tensor
    nodes: torch.Tensor


def verify_tree(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    draft_probs: DraftProbs,
    rows: TreeRows,
    greedy: torch.Tensor,
    noise: Noise,
) -> TreeVerdict:
    """Walks down each request's tree along accepted tokens, and samples the token after them.

    Siblings are tried in the order of rank. With p_0 = p, sibling x_i is accepted with probability
    min(1, p_i(x_i) / q_i(x_i)), else p_{i+1} = norm(max(0, p_i - q_i)). If none is accepted, the last of these gives
    the token that ends the output; after a leaf p does. A greedy request follows the child that is p's most likely
    token. The output is then distributed as p.

    If all siblings are point masses, their row's token is sampled from p first, and the walk follows the child with
    that token: the probabilities are the same, and the output of a seeded request does not depend on the draft.

    Args:
        target_logits: [num_rows, vocab_size] float32, after the request's whole sampling pipeline.
        draft_token_ids: [num_draft_tokens] int64; `NO_TOKEN`, and all its descendants, are dropped.
        draft_probs: q of each draft token given its earlier siblings. With independent sampling all siblings have the
            same q; without replacement it is q without the earlier tokens, renormalised (also if equal tokens of
            independent sampling were merged); tokens that were not sampled are point masses.
        rows: layout of the step.
        greedy: [batch_size] bool, whether each request is greedy.
        noise: random numbers of the step.
    """
    tokens = draft_token_ids.tolist()
    requests = []
    start = 0
    for i, tree in enumerate(rows.trees):
        own = tokens[start : start + tree.num_nodes]
        requests.append(_Walk(own, TreePieces.of(tree).successors, start, first_row=start + i))
        start += tree.num_nodes
    is_greedy = greedy.tolist()
    if all(is_greedy):
        most_likely = target_logits.argmax(-1).tolist()
        for request in requests:
            while request.take(most_likely[request.row]):
                pass
        return _verdict(requests, rows)
    step = _Step(target_logits, draft_token_ids, draft_probs, noise)
    certain = [request for request, wanted in zip(requests, is_greedy, strict=True) if wanted]
    sampled = [request for request, wanted in zip(requests, is_greedy, strict=True) if not wanted]
    while certain or sampled:
        certain = _go_on(certain, step.most_likely(certain))
        drawn: list[_Walk] = []
        others: list[_Walk] = []
        for request in sampled:
            (drawn if step.has_drawn_siblings(request) else others).append(request)
        sampled = _go_on(others, step.draw(others)) + step.try_siblings(drawn)
    return _verdict(requests, rows)


@dataclass(slots=True)
class _Walk:
    """State of a request's walk down its tree.

    Attributes:
        draft_token_ids: draft token of each node.
        successors: nodes after each row of the request.
        start: index of its first draft token in the step.
        first_row: index of its first row in the step.
        node: last accepted node; -1 for none.
        token_ids: output tokens so far.
        rows: row that decided each output token.
    """

    draft_token_ids: list[int]
    successors: tuple[tuple[int, ...], ...]
    start: int
    first_row: int
    node: int = -1
    token_ids: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def row(self) -> int:
        """The row after the last accepted node."""
        return self.first_row + 1 + self.node

    @property
    def siblings(self) -> tuple[int, ...]:
        """The children of the last accepted node, those without a draft token included."""
        return self.successors[self.node + 1]

    def sibling(self, trial: int) -> int | None:
        """Returns the sibling of this index, if it has a draft token."""
        node = self.siblings[trial] if trial < len(self.siblings) else None
        return None if node is None or self.draft_token_ids[node] == NO_TOKEN else node

    def accept(self, node: int) -> None:
        """Outputs the token of `node`, and moves there."""
        self.end(self.draft_token_ids[node])
        self.node = node

    def end(self, token: int) -> None:
        """Outputs `token` without moving."""
        self.token_ids.append(token)
        self.rows.append(self.row)

    def take(self, token: int) -> bool:
        """Outputs `token`, and moves to the child with it; returns whether there is one."""
        for node in self.siblings:
            if self.draft_token_ids[node] == token:
                self.accept(node)
                return True
        self.end(token)
        return False


def _go_on(requests: Sequence[_Walk], token_ids: Sequence[int]) -> list[_Walk]:
    return [request for request, token in zip(requests, token_ids, strict=True) if request.take(token)]


class _Step:
    """Operations over the vocabulary; computes p only for rows that a walk reaches."""

    def __init__(
        self, logits: torch.Tensor, draft_token_ids: torch.Tensor, draft_probs: DraftProbs, noise: Noise
    ) -> None:
        self._logits = logits
        self._tokens = draft_token_ids.clamp_min(0)
        self._draft_probs = draft_probs
        self._noise = noise
        self._drawn: list[bool] | None = None
        if draft_probs is not None:
            self._q = token_probs(draft_probs, self._tokens)
            self._drawn = (self._q != 1).tolist()

    def has_drawn_siblings(self, request: _Walk) -> bool:
        """Whether any child of the last accepted node was sampled."""
        drawn = self._drawn
        if drawn is None:
            return False
        for node in request.siblings:
            if drawn[request.start + node] and request.draft_token_ids[node] != NO_TOKEN:
                return True
        return False

    def most_likely(self, requests: Sequence[_Walk]) -> list[int]:
        """Returns the most likely token at each request's row."""
        if not requests:
            return []
        best: list[int] = self._logits[self._rows(requests)].argmax(-1).tolist()
        return best

    def draw(self, requests: Sequence[_Walk]) -> list[int]:
        """Samples a token of p at each request's row."""
        if not requests:
            return []
        rows = self._rows(requests)
        return self._sample(self._logits[rows].softmax(-1), rows)

    def try_siblings(self, requests: Sequence[_Walk]) -> list[_Walk]:
        """Tries each request's siblings in turn, and ends requests without an accepted one.

        Returns:
            The other requests.
        """
        if not requests:
            return []
        rows = self._rows(requests)
        # p_i times its mass. Its precision falls with the mass, as does the probability that it is used.
        left = self._logits[rows].softmax(-1)
        mass = torch.ones(len(requests), device=rows.device)
        waiting = dict(enumerate(requests))
        for trial in range(max(len(request.siblings) for request in requests)):
            nodes = {i: node for i, request in waiting.items() if (node := request.sibling(trial)) is not None}
            if not nodes:
                continue
            indices = self._index(nodes)
            drafts = self._index(waiting[i].start + node for i, node in nodes.items())
            tokens, q = self._tokens[drafts], self._q[drafts]
            # Strict, so that p = 0 is never accepted and p >= q always.
            threshold = self._noise.uniform(rows[indices], trial) * q * mass[indices]
            kept = (threshold < left[indices, tokens]) & (q > 0)
            self._reject(left, mass, indices[~kept], drafts[~kept])
            for (i, node), keep in zip(nodes.items(), kept.tolist(), strict=True):
                if keep:
                    waiting.pop(i).accept(node)
        indices = self._index(waiting)
        for request, token in zip(waiting.values(), self._sample(left[indices], rows[indices]), strict=True):
            request.end(token)
        return [request for i, request in enumerate(requests) if i not in waiting]

    def _reject(self, left: torch.Tensor, mass: torch.Tensor, indices: torch.Tensor, drafts: torch.Tensor) -> None:
        """Subtracts q of rejected draft tokens, in place.

        Args:
            left: [n, vocab_size], p_i times its mass.
            mass: [n], sums of its rows.
            indices: [m] int64, rows of `left` with a rejected token.
            drafts: [m] int64, the rejected tokens.
        """
        if not len(indices) or self._draft_probs is None:
            return
        rest, scale = left[indices], mass[indices, None]
        if isinstance(self._draft_probs, SparseProbs):
            rest.scatter_add_(1, self._draft_probs.token_ids[drafts], -self._draft_probs.probs[drafts] * scale)
        else:
            rest.addcmul_(self._draft_probs[drafts], scale, value=-1)
        total = rest.clamp_min_(0).sum(-1, keepdim=True)
        # An empty residual means p = q up to rounding; this rejection has probability 0 in exact arithmetic.
        empty = total <= 0
        left[indices] = torch.where(empty, left[indices], rest)
        mass[indices] = torch.where(empty, scale, total).squeeze(1)

    def _sample(self, weights: torch.Tensor, rows: torch.Tensor) -> list[int]:
        """Samples one token per row of `weights`, with the noise of `rows`."""
        if not len(rows):
            return []
        sampled: list[int] = self._noise.sample(weights, rows).tolist()
        return sampled

    def _rows(self, requests: Sequence[_Walk]) -> torch.Tensor:
        return self._index(request.row for request in requests)

    def _index(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int64, device=self._logits.device)


def _verdict(requests: Sequence[_Walk], rows: TreeRows) -> TreeVerdict:
    token_ids = [request.token_ids + [NO_TOKEN] * (rows.width - len(request.token_ids)) for request in requests]
    decided = [request.rows + request.rows[-1:] * (rows.width - len(request.rows)) for request in requests]
    shape, device = (len(requests), rows.width), rows.request.device
    return TreeVerdict(
        token_ids=torch.tensor(token_ids, dtype=torch.int32, device=device).reshape(shape),
        rows=torch.tensor(decided, dtype=torch.int64, device=device).reshape(shape),
        nodes=torch.tensor([request.node for request in requests], dtype=torch.int64, device=device),
    )
