"""Lays out a step that verifies trees: positions, slots and block tables of its tokens.

Each path from the end of the text to a leaf is one sequence for the attention layers. The first path, the trunk, uses
the request's own blocks. Each other one, a branch, has its own blocks (a fork) from the first position after the text
on, with a copy of the request's partly filled block. No token is computed twice: a branch begins with the first node
that no earlier path has, and keys and values of shared nodes are written to its blocks too. So causal attention is tree
attention. See docs/design/v1.md.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.v1.tree_branches import Int64s, Part, branches_of, part_of
from vllm_spec_plugin.verification.topology import Topology

Int32s = npt.NDArray[np.int32]
BlockCopy = tuple[int, int]


@dataclass(frozen=True)
class StepRequest:
    """One request of the step.

    Attributes:
        row: its row of the batch.
        num_computed: tokens with keys and values in the cache.
        num_tokens: tokens in the step: text, then the tree's nodes.
        tree: shape of the drafts; empty if there are none.
        forks: block ids of its branches, branch by branch.
        fork_size: number of blocks per branch.
    """

    row: int
    num_computed: int
    num_tokens: int
    tree: Topology
    forks: Sequence[int] = ()
    fork_size: int = 1


@dataclass(frozen=True)
class Branched:
    """A tree in a request's blocks.

    Attributes:
        tree: all its nodes.
        num_nodes: number of nodes, from the first on, of branches with blocks; the others cannot be verified.
        length: tokens of the text.
        first_block: index in the block table of the first block that branches have of their own.
        tails: [branches and trunk, blocks], block tables from that index on; the trunk's is first.
    """

    tree: Topology
    num_nodes: int
    length: int
    first_block: int
    tails: Int32s

    def join(self, node: int, block_size: int) -> list[BlockCopy]:
        """Returns the copies (from, to) that bring the path to `node` (-1 is none) into the request's own blocks."""
        owner = branches_of(self.tree).owner[node] if node >= 0 else 0
        if not owner:
            return []
        num_blocks = (self.length + self.tree.depths[node] - 1) // block_size - self.first_block + 1
        return list(zip(self.tails[owner, :num_blocks].tolist(), self.tails[0, :num_blocks].tolist(), strict=True))


@dataclass(frozen=True)
class TreeStep:
    """Attention inputs of the step: its n sequences, in the order of the batch's tokens.

    Attributes:
        query_start: [n + 1] int32, index of each sequence's first token, then the number of tokens.
        lengths: [n] int32, each sequence's tokens in the cache at the end of the step.
        tables: [n, max_blocks] int32.
        nodes: [any] int64, indices of the nodes among the step's tokens; vLLM treats them as one chain.
        positions: [any] int64, positions of the nodes.
        slots: [any] int64, KV cache slots of the nodes.
        shared: [any] int64, indices of tokens that are also written to other slots.
        shared_slots: [any] int64, those other slots.
        copies: blocks to copy (from, to) before the step.
        branched: the requests with trees, by row.
    """

    query_start: Int32s
    lengths: Int32s
    tables: Int32s
    nodes: Int64s
    positions: Int64s
    slots: Int64s
    shared: Int64s
    shared_slots: Int64s
    copies: list[BlockCopy]
    branched: Mapping[int, Branched]


def plan_tree_step(requests: Sequence[StepRequest], tables: Int32s, block_size: int) -> TreeStep:
    """Lays out a step.

    A branch without blocks is left out: its nodes are computed after the trunk's, where they change no other result,
    and are ignored.

    Args:
        requests: all requests of the step, in the order of the batch.
        tables: [rows, any], the batch's block tables.
        block_size: tokens per block.
    """
    queries, lengths, rows, width = [0], [], [], 1
    placed: list[_Placed] = []
    start = 0
    for request in requests:
        tree, row = request.tree, request.row
        end = request.num_computed + request.num_tokens
        width = max(width, -(-end // block_size))
        if len(tree.chains) < 2:
            queries.append(start + request.num_tokens)
            lengths.append(end)
            rows.append(row)
            start += request.num_tokens
            continue
        length = end - tree.num_nodes
        root = start + length - request.num_computed - 1
        this = _placed(request, length, root, len(rows), block_size)
        placed.append(this)
        begins, ends = this.part.begins, this.part.ends
        for way in range(this.part.count):
            queries.append(root + 1 + begins[way + 1])
            lengths.append(length + ends[way])
            rows.append(row)
        start += request.num_tokens
        if this.part.num_nodes < tree.num_nodes:
            queries.append(start)
            lengths.append(end)
            rows.append(row)
    own = tables[rows, :width]
    tails = _tails(placed, tables)
    return TreeStep(
        query_start=np.array(queries, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        tables=own,
        copies=_copies(placed, tails, block_size),
        branched={
            this.request.row: Branched(this.request.tree, this.part.num_nodes, this.length, this.first, own_tails)
            for this, own_tails in zip(placed, tails, strict=True)
        },
        **_slots(placed, tails, own, block_size),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tree, and its indices in the step.

    Attributes:
        request: the tree's request.
        part: the paths that have blocks.
        length: tokens of the request's text.
        root: index of the text's last token among the step's tokens.
        at: index of its first sequence in the step.
        first: index in the block table of the first block that branches have of their own.
        num_blocks: blocks per path from that index on.
    """

    request: StepRequest
    part: Part
    length: int
    root: int
    at: int
    first: int
    num_blocks: int


def _placed(request: StepRequest, length: int, root: int, at: int, block_size: int) -> _Placed:
    tree = request.tree
    first, last = length // block_size, (length + tree.depth - 1) // block_size
    num_blocks, size = last - first + 1, request.fork_size
    count = 1 + min(len(request.forks) // size if size >= num_blocks else 0, len(tree.chains) - 1)
    return _Placed(request, part_of(tree, count), length, root, at, first, num_blocks)


def _tails(placed: Sequence[_Placed], tables: Int32s) -> list[Int32s]:
    """Returns per tree [paths, blocks], the blocks of each path from the first one that branches have of their own."""
    tails = []
    for this in placed:
        request, num_blocks, size = this.request, this.num_blocks, this.request.fork_size
        own = np.empty((this.part.count, num_blocks), dtype=np.int32)
        own[0] = tables[request.row, this.first : this.first + num_blocks]
        if this.part.count > 1:
            forks = np.array(request.forks[: (this.part.count - 1) * size], dtype=np.int32)
            own[1:] = forks.reshape(-1, size)[:, :num_blocks]
        tails.append(own)
    return tails


def _copies(placed: Sequence[_Placed], tails: Sequence[Int32s], block_size: int) -> list[BlockCopy]:
    """Returns the copies from requests' own blocks to those of branches."""
    copies: list[BlockCopy] = []
    for this, own in zip(placed, tails, strict=True):
        # Where a block begins with this step's tokens there is nothing to copy.
        if this.request.num_computed > this.first * block_size:
            trunk, *branches = own[:, 0].tolist()
            copies += [(trunk, branch) for branch in branches]
    return copies


def _slots(placed: Sequence[_Placed], tails: Sequence[Int32s], own: Int32s, block_size: int) -> dict[str, Int64s]:
    """Returns indices, positions and slots of all trees' tokens, and the tokens that are also written to other slots.

    Args:
        placed: the trees.
        tails: per tree the blocks of its paths.
        own: [sequences, blocks], the block tables, to which those of branches are written.
    """
    if not placed:
        return dict.fromkeys(("nodes", "positions", "slots", "shared", "shared_slots"), np.empty(0, np.int64))
    facts = np.array([(this.root, this.length, this.at) for this in placed])
    for this, blocks in zip(placed, tails, strict=True):
        own[this.at : this.at + this.part.count, this.first : this.first + this.num_blocks] = blocks

    def located(parts: Sequence[Int64s]) -> tuple[Int64s, Int64s, Int64s]:
        """Returns indices in the step, positions and slots of (node, path, depth)."""
        root, length, at = facts.repeat([part.shape[1] for part in parts], axis=0).T
        nodes, ways, depths = np.concatenate(parts, axis=1)
        positions = length + depths - 1
        blocks = own[at + ways, positions // block_size].astype(np.int64)
        return root + 1 + nodes, positions, blocks * block_size + positions % block_size

    nodes, positions, slots = located([this.part.nodes for this in placed])
    # The part of the step's text in blocks of the branches' own: nodes before the first one.
    begins = [max(this.request.num_computed, this.first * block_size) for this in placed]
    parts = [
        np.concatenate([this.part.shared, _text(this.length - begin, this.part.count)], axis=1)
        for this, begin in zip(placed, begins, strict=True)
    ]
    shared, _, shared_slots = located(parts)
    return {"nodes": nodes, "positions": positions, "slots": slots, "shared": shared, "shared_slots": shared_slots}


@functools.lru_cache(maxsize=4096)
def _text(num_tokens: int, count: int) -> Int64s:
    """Returns [3, any], the last tokens of a text as nodes before the first one, on all paths but the trunk."""
    before = np.arange(-max(num_tokens, 0), 0)
    ways = np.arange(1, count).repeat(len(before))
    return np.stack([np.tile(before, count - 1), ways, np.tile(before + 1, count - 1)])
