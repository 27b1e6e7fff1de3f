"""Several drafts per request at once, in torch alone: SpecInfer's prefix trees (Miao et al., arXiv 2305.09781).

The draft model follows each branch as a sequence of its own from the end of the text on. Branches that have not parted
yet are fed the same tokens.
"""

import bisect
import itertools
import operator
from collections.abc import Sequence

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.siblings import draw_siblings
from vllm_spec_plugin.verification.topology import Topology, topology


def branch_topology(branches: Sequence[int]) -> Topology:
    """The tree in which `branches[d]` tokens follow each token that has d before it."""
    return topology(
        path
        for depth in range(1, len(branches) + 1)
        for path in itertools.product(*(range(count) for count in branches[:depth]))
    )


def depth_within(branches: Sequence[int], num_tokens: int) -> int:
    """How deep branches go with at most `num_tokens` tokens together."""
    num_nodes = itertools.accumulate(itertools.accumulate(branches, operator.mul))
    return bisect.bisect_right(list(num_nodes), num_tokens)


class GrowingBranches:
    """Chooses the tokens of draft trees, place by place.

    Sequences are the requests' branches, request by request; requests with deeper trees come first, so that
    those who are through are the last.

    Attributes:
        counts: per request, branches that are followed.
        last: [n] int64, the newest token of each sequence that goes on.
    """

    last: torch.Tensor

    def __init__(
        self,
        requests: Sequence[RequestView],
        lengths: Sequence[int],
        counts: Sequence[int],
        branches: Sequence[int],
        draws: bool,
        device: torch.device,
    ) -> None:
        """Begins with nothing drafted.

        Args:
            requests: whose drafts these are.
            lengths: depth of each one's tree, descending, at least 1 and at most that of `branches`.
            counts: branches that each one has blocks for, at least 1.
            branches: how many tokens follow each one, place by place.
            draws: whether drafts of sampled requests are drawn.
            device: where logits will be.
        """
        whole = branch_topology(branches)
        self.counts = [min(count, len(whole.chains)) for count in counts]
        self._requests, self._lengths, self._branches = requests, lengths, branches
        self._trees = [
            whole.first(whole.chains[count - 1][-1] + 1).within(length)
            for count, length in zip(self.counts, lengths, strict=True)
        ]
        self._drawn = [draws and not request.point_mass for request in requests]
        self._device = device
        self._first = [0, *itertools.accumulate(self.counts)]
        # Branches below a token, by how many tokens come before its children.
        below = itertools.accumulate(branches, operator.floordiv, initial=len(whole.chains))
        self._below = list(below)
        self._sequence_tokens = torch.full((len(branches), self._first[-1]), -1, device=device)
        self._place = 0
        # Per place and request, its children's tokens, and their q.
        self._tokens: list[list[list[int]]] = []
        self._probs: list[list[torch.Tensor | None]] = []

    @property
    def is_done(self) -> bool:
        """Whether all trees have their depth."""
        return not self._alive()

    def parents(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the tokens that are to get children: their sequences, rows of the batch, and drafts up to them.

        Returns:
            [n] int64 indices of a sequence through each, [n] int64, and [n, tokens so far] int64.
        """
        below = self._below[self._place]
        sequences: list[int] = []
        rows: list[int] = []
        for i in range(self._alive()):
            starts = range(self._first[i], self._first[i + 1], below)
            sequences += starts
            rows += [self._requests[i].row] * len(starts)
        index = torch.tensor(sequences, device=self._device)
        return index, torch.tensor(rows, device=self._device), self._sequence_tokens[: self._place, index].T

    def grow(self, logits: torch.Tensor) -> None:
        """Chooses the children of all parents.

        Args:
            logits: [n, vocab_size], in the order of `parents`, after the requests' sampling pipelines.
        """
        place, count = self._place, self._branches[self._place]
        above, below = self._below[place], self._below[place + 1]
        alive = self._alive()
        num_parents = [-(-self.counts[i] // above) for i in range(alive)]
        tokens = logits.topk(count).indices if count > 1 else logits.argmax(-1, keepdim=True)
        probs: torch.Tensor | None = None
        if any(self._drawn[:alive]):
            drawn = torch.tensor(self._drawn[:alive], device=self._device).repeat_interleave(
                torch.tensor(num_parents, device=self._device)
            )
            uniforms = np.zeros((len(logits), count))
            start = 0
            for i, num in enumerate(num_parents):
                if self._drawn[i]:
                    uniforms[start : start + num] = self._requests[i].uniforms_of_siblings(place, count)
                start += num
            chosen, probs = draw_siblings(logits, torch.from_numpy(uniforms).to(self._device))
            tokens = torch.where(drawn[:, None], chosen, tokens)
        last = []
        children = tokens.tolist()
        self._tokens.append([])
        self._probs.append([])
        start = 0
        for i, num in enumerate(num_parents):
            mine = [token for siblings in children[start : start + num] for token in siblings]
            self._tokens[-1].append(mine)
            of_mine = probs[start : start + num].flatten(0, 1) if probs is not None and self._drawn[i] else None
            self._probs[-1].append(of_mine)
            last += [mine[sequence // below] for sequence in range(self.counts[i])]
            start += num
        self._place += 1
        newest = torch.tensor(last, device=self._device)
        self._sequence_tokens[place, : len(newest)] = newest
        self.last = newest[: self._first[self._alive()]]

    def finish(self) -> list[tuple[Draft, list[int]]]:
        """Per request: its draft, and those tokens of its first branch that the model was fed, all but the last."""
        result = []
        for i, tree in enumerate(self._trees):
            places = [self._index(path) for path in tree.choices]
            tokens = [self._tokens[len(path) - 1][i][at] for path, at in zip(tree.choices, places, strict=True)]
            probs = None
            if self._drawn[i]:
                rows = []
                for path, at in zip(tree.choices, places, strict=True):
                    of_place = self._probs[len(path) - 1][i]
                    assert of_place is not None
                    rows.append(of_place[at])
                probs = torch.stack(rows)
            trunk = [tokens[node] for node in tree.chains[0]] if tree.chains else []
            result.append((Draft(tokens, probs, tree), trunk[:-1]))
        return result

    def _alive(self) -> int:
        return sum(length > self._place for length in self._lengths)

    def _index(self, path: Sequence[int]) -> int:
        """Where the tokens of a place have the node at `path`."""
        index = 0
        for rank, count in zip(path, self._branches, strict=False):
            index = index * count + rank
        return index
