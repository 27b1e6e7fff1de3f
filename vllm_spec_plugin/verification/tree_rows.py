"""Which row of the target's output follows which node of the requests' draft trees."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.verification.rows import Rows
from vllm_spec_plugin.verification.topology import Topology

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TreeRows(Rows):
    """The layout of one verification step over trees.

    Request i, whose tree has N_i nodes, owns 1 + N_i consecutive rows of the target's logits: its first
    row follows its text, row 1 + j after that follows node j. Its draft tokens are its nodes, in order.

    Attributes:
        request: [num_rows] int64, the request of each row.
        offset: [num_rows] int64, how many drafts come before a row on its own way: its depth.
        first: [batch_size] int64, each request's first row.
        num_draft_tokens: [batch_size] int64, N.
        draft_row: [num_draft_tokens] int64, the row that judges each draft token: its parent's.
        draft_start: [batch_size] int64, each request's first draft token.
        later_drafts: [n] int64, the draft tokens that another one comes before on their way.
        width: most tokens that a request can output: the deepest tree and one.
        ancestors: [num_rows, width - 1] int64, the draft tokens before each row from the text on, as
            indices into the step's, -1 where there are fewer.
        children: [num_rows, most] int64, the draft tokens that each row judges, by rank, as indices
            into the step's, -1 where there are fewer.
        node_row: [num_draft_tokens] int64, the row that follows each draft token.
        trees: per request its tree.
    """

    ancestors: torch.Tensor
    children: torch.Tensor
    node_row: torch.Tensor
    trees: tuple[Topology, ...]

    @classmethod
    def of(cls, trees: Sequence[Topology], device: torch.device) -> "TreeRows":  # type: ignore[override]
        """The layout for these trees, one per request, empty ones too; not to be written, it may be shared."""
        return _layout(tuple(trees), device)

    def context(self, draft_token_ids: torch.Tensor) -> torch.Tensor:
        """[num_rows, width - 1] int64: the drafts before each row in text order, negative where there are fewer.

        Args:
            draft_token_ids: [num_draft_tokens] int64, negative where nothing was drafted.
        """
        before = draft_token_ids[self.ancestors.clamp_min(0)] if len(draft_token_ids) else self.ancestors
        return before.masked_fill(self.ancestors < 0, -1)


@dataclass(frozen=True, eq=False)
class TreePieces:
    """One tree's part of a layout, counted from its own first row and draft token.

    Attributes:
        depths: [1 + N], per row.
        parents: [N], per node the row that judges it.
        ancestors: [1 + N, depth], per row the nodes before it, -1 where there are fewer.
        children: [1 + N, most], per row the nodes after it, -1 where there are fewer.
        successors: per row the nodes after it.
    """

    depths: Int64s
    parents: Int64s
    ancestors: Int64s
    children: Int64s
    successors: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tree: Topology) -> "TreePieces":
        """The pieces of `tree`; not to be written, they are shared."""
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
        children=_padded(successors),
        successors=tuple(tuple(nodes) for nodes in successors),
    )


def _padded(lists: Sequence[Sequence[int]]) -> Int64s:
    table = np.full((len(lists), max(map(len, lists))), -1, dtype=np.int64)
    for row, values in zip(table, lists, strict=True):
        row[: len(values)] = values
    return table


# Steps repeat: most have the same trees as one of the last few.
@functools.lru_cache(maxsize=64)
def _layout(trees: tuple[Topology, ...], device: torch.device) -> TreeRows:
    pieces = [_pieces(tree) for tree in trees]
    counts = np.array([tree.num_nodes for tree in trees], dtype=np.int64)
    owned = counts + 1
    first, draft_start = owned.cumsum() - owned, counts.cumsum() - counts
    request = np.arange(len(trees)).repeat(owned)
    offset = np.concatenate([p.depths for p in pieces]) if pieces else request
    parents = np.concatenate([p.parents for p in pieces]) if pieces else request
    node_row = np.arange(int(counts.sum())) + 1 + np.arange(len(trees)).repeat(counts)
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
        "children": _stacked([p.children for p in pieces], draft_start[request]),
        "node_row": node_row,
    }
    tensors = {name: torch.from_numpy(values).to(device) for name, values in on_device.items()}
    return TreeRows(**tensors, width=int(offset.max(initial=0)) + 1, trees=trees)


def _stacked(tables: Sequence[Int64s], start: Int64s) -> Int64s:
    """The tables below each other, as wide as the widest; `start` is added to what is not padding."""
    stacked = np.full((len(start), max((table.shape[1] for table in tables), default=0)), -1, dtype=np.int64)
    end = 0
    for table in tables:
        stacked[end : end + len(table), : table.shape[1]] = table
        end += len(table)
    return np.where(stacked >= 0, stacked + start[:, None], -1)
