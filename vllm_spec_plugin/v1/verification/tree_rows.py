"""Lays out the rows of the target's output in a step that verifies trees."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.verification.topology import Topology

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreeRows(Rows):
    """The layout of one verification step over trees.

    Request i, whose tree has N_i nodes, has 1 + N_i consecutive rows of the target's logits: the first one follows its
    text, row 1 + j follows node j. Its draft tokens are its nodes, in order.

    Attributes:
        request: [num_rows] int64, index of each row's request.
        offset: [num_rows] int64, number of draft tokens on the path to each row: its depth.
        first: [batch_size] int64, each request's first row.
        num_draft_tokens: [batch_size] int64, N.
        draft_row: [num_draft_tokens] int64, row that verifies each draft token: its parent's.
        draft_start: [batch_size] int64, index of each request's first draft token.
        later_drafts: [n] int64, indices of the draft tokens with a parent.
        width: maximum output tokens of a request: the depth of the deepest tree, plus 1.
        ancestors: [num_rows, width - 1] int64, indices of the draft tokens on the path to each row, padded with -1.
        trees: tree of each request.
    """

    ancestors: torch.Tensor
    trees: tuple[Topology, ...]

    @classmethod
    def of(cls, trees: Sequence[Topology], device: torch.device) -> "TreeRows":  # type: ignore[override]
        """Returns the layout for one tree per request, which may be empty; read-only, as it is cached."""
        return _layout(tuple(trees), device)

    def context(self, draft_token_ids: torch.Tensor) -> torch.Tensor:
        """Returns [num_rows, width - 1] int64, draft tokens on the path to each row, padded with negative values.

        Args:
            draft_token_ids: [num_draft_tokens] int64, negative for no token.
        """
        before = draft_token_ids[self.ancestors.clamp_min(0)] if len(draft_token_ids) else self.ancestors
        return before.masked_fill(self.ancestors < 0, -1)


@dataclass(frozen=True, eq=False)
class TreePieces:
    """One tree's part of a layout, counted from its own first row and draft token.

    Attributes:
        depths: [1 + N], depth of each row.
        parents: [N], row that verifies each node.
        ancestors: [1 + N, depth], nodes on the path to each row, padded with -1.
        successors: nodes after each row.
    """

    depths: Int64s
    parents: Int64s
    ancestors: Int64s
    successors: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: Topology) -> "TreePieces":
        """Returns the pieces of `tree`; read-only, as they are cached."""
        return _pieces(tree)


@functools.lru_cache(maxsize=4096)
def _pieces(tree: Topology) -> TreePieces:
    ways: list[tuple[int, ...]] = [()]
    successors: list[list[int]] = [[] for _ in range(tree.num_nodes + 1)]
    for node, parent in enumerate(tree.parents):
        ways.append((*ways[parent + 1], node))
        successors[parent + 1].append(node)
    return TreePieces(
        depths=np.array((0, *tree.depths), dtype=np.int64),
        parents=np.array(tree.parents, dtype=np.int64) + 1,
        ancestors=_padded(ways),
        successors=tuple(tuple(nodes) for nodes in successors),
    )


def _padded(lists: Sequence[Sequence[int]]) -> Int64s:
    table = np.full((len(lists), max(map(len, lists))), -1, dtype=np.int64)
    for row, values in zip(table, lists, strict=True):
        row[: len(values)] = values
    return table


# Most steps have the same trees as one of the last few.
@functools.lru_cache(maxsize=64)
def _layout(trees: tuple[Topology, ...], device: torch.device) -> TreeRows:
    pieces = [_pieces(tree) for tree in trees]
    counts = np.array([tree.num_nodes for tree in trees], dtype=np.int64)
    owned = counts + 1
    first, draft_start = owned.cumsum() - owned, counts.cumsum() - counts
    request = np.arange(len(trees)).repeat(owned)
    offset = np.concatenate([p.depths for p in pieces]) if pieces else request
    parents = np.concatenate([p.parents for p in pieces]) if pieces else request
    draft_row = parents + first.repeat(counts)
    on_device = {
        "request": request,
        "offset": offset,
        "first": first,
        "num_draft_tokens": counts,
        "draft_row": draft_row,
        "draft_start": draft_start,
        "later_drafts": offset[draft_row].nonzero()[0],
        "ancestors": _stacked([p.ancestors for p in pieces], draft_start[request]),
    }
    tensors = {name: torch.from_numpy(values).to(device) for name, values in on_device.items()}
    return TreeRows(**tensors, width=int(offset.max(initial=0)) + 1, trees=trees)


def _stacked(tables: Sequence[Int64s], start: Int64s) -> Int64s:
    """Returns the tables below each other, with the width of the widest; adds `start` to entries, not to padding."""
    stacked = np.full((len(start), max((table.shape[1] for table in tables), default=0)), -1, dtype=np.int64)
    end = 0
    for table in tables:
        stacked[end : end + len(table), : table.shape[1]] = table
        end += len(table)
    return np.where(stacked >= 0, stacked + start[:, None], -1)
