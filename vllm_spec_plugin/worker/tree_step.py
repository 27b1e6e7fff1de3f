"""Where the tokens of a step that verifies trees stand, and which blocks they see. Imports no vLLM.

Each way from the end of the text to a leaf is a sequence of its own for the attention layers. The first one, the
trunk, goes on in the request's own blocks; each other one, a branch, has blocks of its own (a fork) from the first
position after the text on, filled with a copy of what the request's block holds. No token is computed twice: a branch
begins with the first token that it does not share with those before it, and the keys and values of what it does share
are written to its blocks too, while they are written to the others'. So ordinary causal attention is tree attention.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.verification.topology import Topology

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
BlockCopy = tuple[int, int]


@dataclass(frozen=True)
class StepRequest:
    """One request of the step.

    Attributes:
        row: its place in the batch.
        num_computed: tokens whose keys and values are in the cache.
        num_tokens: tokens in the step: text, then the tree's nodes.
        tree: of the drafts; empty if there are none.
        forks: ids of the blocks that its branches got, those of a branch together.
        fork_size: how many blocks a branch got.
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
        num_nodes: how many of them, from the first, can be verified: those of branches that got blocks.
        length: tokens of the text.
        first_block: the place in the block table from which on branches have their own.
        tails: [branches and trunk, blocks], from that place on; the trunk's are first.
    """

    tree: Topology
    num_nodes: int
    length: int
    first_block: int
    tails: Int32s

    def join(self, node: int, block_size: int) -> list[BlockCopy]:
        """Copies (from, to) that bring the way to `node` (-1 is none) into the request's own blocks."""
        owner = _branches(self.tree).owner[node] if node >= 0 else 0
        if not owner:
            return []
        num_blocks = (self.length + self.tree.depths[node] - 1) // block_size - self.first_block + 1
        return list(zip(self.tails[owner, :num_blocks].tolist(), self.tails[0, :num_blocks].tolist(), strict=True))


@dataclass(frozen=True)
class TreeStep:
    """What attention must know of the step: its n sequences, in the order of the batch's tokens.

    Attributes:
        query_start: [n + 1] int32, where each one's tokens begin.
        lengths: [n] int32, each one's tokens in the cache at the end of the step.
        tables: [n, most blocks] int32.
        nodes: [any] int64, places in the batch of the nodes, of which vLLM thinks as one chain.
        positions: their positions in the text.
        slots: their slots in the cache.
        shared: [any] int64, places in the batch of tokens that are written to further slots.
        shared_slots: these slots.
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


@dataclass(frozen=True)
class _Branches:
    """A tree's ways to its leaves.

    Attributes:
        owner: [nodes], which one computes each node: the first one it is on.
        begins: per way its first own node; the end of the last one.
        ends: per way the depth of its leaf.
        shared: [any], nodes on a way that others own.
        shared_by: [any], that way.
    """

    owner: Int64s
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    shared: Int64s
    shared_by: Int64s
    depths: Int64s


@functools.lru_cache(maxsize=4096)
def _branches(tree: Topology) -> _Branches:
    begins, owner, shared, shared_by = [0], np.zeros(tree.num_nodes, dtype=np.int64), [], []
    for way, nodes in enumerate(tree.chains):
        before = [node for node in nodes if node < begins[-1]]
        shared += before
        shared_by += [way] * len(before)
        owner[begins[-1] : nodes[-1] + 1] = way
        begins.append(nodes[-1] + 1)
    return _Branches(
        owner=owner,
        begins=tuple(begins),
        ends=tuple(len(nodes) for nodes in tree.chains),
        shared=np.array(shared, dtype=np.int64),
        shared_by=np.array(shared_by, dtype=np.int64),
        depths=np.array(tree.depths, dtype=np.int64),
    )


def plan_tree_step(requests: Sequence[StepRequest], tables: Int32s, block_size: int, copy_all: bool) -> TreeStep:
    """Lays a step out.

    A branch that got no blocks is left out: its nodes are computed behind the trunk's, where they disturb
    nobody, and mean nothing.

    Args:
        requests: all of the step's, in the order of the batch.
        tables: [rows, any], the batch's block tables.
        block_size: tokens per block.
        copy_all: copy all of a branch's blocks, not only those with text: other layers have state there.
    """
    queries, lengths, rows, width = [0], [], [], 1
    parts: dict[str, list[Int64s]] = {name: [] for name in ("nodes", "positions", "slots", "shared", "shared_slots")}
    tails: list[tuple[int, int, Int32s]] = []
    copies: list[BlockCopy] = []
    branched: dict[int, Branched] = {}
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
        this = branched[row] = _branch(request, length, tables[row], block_size)
        branches, count = _branches(tree), len(this.tails)
        root = start + length - request.num_computed - 1
        for way in range(count):
            if way:
                tails.append((len(rows), this.first_block, this.tails[way]))
            queries.append(root + 1 + branches.begins[way + 1])
            lengths.append(length + branches.ends[way])
            rows.append(row)
        if this.num_nodes < tree.num_nodes:
            queries.append(start + request.num_tokens)
            lengths.append(end)
            rows.append(row)
        _place(this, root, request.num_computed, block_size, parts)
        # Where a block begins with this step's tokens there is nothing to copy.
        of_text = request.num_computed > this.first_block * block_size
        to_copy = this.tails.shape[1] if copy_all else int(of_text)
        for way in range(1, count):
            copies += zip(this.tails[0, :to_copy].tolist(), this.tails[way, :to_copy].tolist(), strict=True)
        start += request.num_tokens
    own = tables[rows, :width]
    for at, first, tail in tails:
        own[at, first : first + len(tail)] = tail[: width - first]
    joined = {name: np.concatenate(part) if part else np.empty(0, np.int64) for name, part in parts.items()}
    return TreeStep(
        query_start=np.array(queries, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        tables=own,
        copies=copies,
        branched=branched,
        **joined,
    )


def _branch(request: StepRequest, length: int, table: Int32s, block_size: int) -> Branched:
    tree, branches = request.tree, _branches(request.tree)
    first, last = length // block_size, (length + tree.depth - 1) // block_size
    num_blocks, size = last - first + 1, request.fork_size
    count = 1 + min(len(request.forks) // size if size >= num_blocks else 0, len(tree.chains) - 1)
    tails = np.empty((count, num_blocks), dtype=np.int32)
    tails[0] = table[first : last + 1]
    for way in range(1, count):
        tails[way] = request.forks[(way - 1) * size : (way - 1) * size + num_blocks]
    return Branched(tree, branches.begins[count], length, first, tails)


def _place(this: Branched, root: int, num_computed: int, block_size: int, parts: dict[str, list[Int64s]]) -> None:
    """Adds a tree's tokens to `parts`; `root` is the place in the batch of the text's last token."""
    branches, count, first = _branches(this.tree), len(this.tails), this.first_block
    tails = this.tails.astype(np.int64)

    def slots(ways: Int64s, positions: Int64s) -> Int64s:
        found: Int64s = tails[ways, positions // block_size - first] * block_size + positions % block_size
        return found

    owner, depths = branches.owner[: this.num_nodes], branches.depths[: this.num_nodes]
    positions = this.length + depths - 1
    parts["nodes"].append(np.arange(root + 1, root + 1 + this.num_nodes))
    parts["positions"].append(positions)
    parts["slots"].append(slots(owner, positions))
    used = branches.shared_by < count
    shared, ways = branches.shared[used], branches.shared_by[used]
    parts["shared"].append(root + 1 + shared)
    parts["shared_slots"].append(slots(ways, this.length + branches.depths[shared] - 1))
    # The step's text, as far as it lies in blocks that branches have of their own.
    text = np.arange(max(num_computed, first * block_size), this.length)
    if len(text) and count > 1:
        forks = np.arange(1, count).repeat(len(text))
        parts["shared"].append(np.tile(root + 1 + text - this.length, count - 1))
        parts["shared_slots"].append(slots(forks, np.tile(text, count - 1)))
