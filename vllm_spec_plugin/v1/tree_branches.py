"""Divides a tree into paths, one sequence each for the attention layers; computed once per tree."""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.verification.topology import Topology

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Branches:
    """A tree's paths to its leaves.

    Attributes:
        owner: [nodes], the path that computes each node: the first one through it.
        begins: per path its first own node, then the number of nodes.
        ends: per path the depth of its leaf.
        shared: [any], nodes on a path that another path owns.
        shared_by: [any], the path that shares each of them.
        depths: [nodes], depth of each node.
    """

    owner: Int64s
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    shared: Int64s
    shared_by: Int64s
    depths: Int64s


@functools.lru_cache(maxsize=4096)
def branches_of(tree: Topology) -> Branches:
    """Returns all paths of a tree."""
    begins, owner, shared, shared_by = [0], np.zeros(tree.num_nodes, dtype=np.int64), [], []
    for way, nodes in enumerate(tree.chains):
        before = [node for node in nodes if node < begins[-1]]
        shared += before
        shared_by += [way] * len(before)
        owner[begins[-1] : nodes[-1] + 1] = way
        begins.append(nodes[-1] + 1)
    return Branches(
        owner=owner,
        begins=tuple(begins),
        ends=tuple(len(nodes) for nodes in tree.chains),
        shared=np.array(shared, dtype=np.int64),
        shared_by=np.array(shared_by, dtype=np.int64),
        depths=np.array(tree.depths, dtype=np.int64),
    )


@dataclass(frozen=True)
class Part:
    """The first paths of a tree, which have blocks.

    Attributes:
        count: number of these paths, trunk included.
        num_nodes: number of their nodes.
        begins: per path its first own node, then the number of nodes.
        ends: per path the depth of its leaf.
        nodes: [3, num_nodes], per node: its number, the path that computes it, its depth.
        shared: [3, any], per other path through a node: the node, that path, its depth.
    """

    count: int
    num_nodes: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    nodes: Int64s
    shared: Int64s


@functools.lru_cache(maxsize=4096)
def part_of(tree: Topology, count: int) -> Part:
    """Returns the first `count` paths of a tree, trunk included."""
    branches = branches_of(tree)
    num_nodes = branches.begins[count]
    used = branches.shared_by < count
    shared = branches.shared[used]
    return Part(
        count=count,
        num_nodes=num_nodes,
        begins=branches.begins,
        ends=branches.ends,
        nodes=np.stack([np.arange(num_nodes), branches.owner[:num_nodes], branches.depths[:num_nodes]]),
        shared=np.stack([shared, branches.shared_by[used], branches.depths[shared]]),
    )
