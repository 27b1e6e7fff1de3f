"""A suffix tree that is extended token by token (Ukkonen, Algorithmica 14, 1995), with counts; compiled code only.

A node stands for the string of tokens on the path to it. Internal nodes are rows of `nodes`; no node has the root, row
0, as a child, so 0 in a link is none. A leaf is the text from one position on, encoded as -(position + 1). The last
suffixes of the text are pending: they get leaves once a new continuation follows. The longest of them is the longest
suffix that occurred before.

An edge is found by hashing (node, first token) and compared with both, so colliding hashes cost time only.

Functions take the arrays one by one: with a `Tree` instead, compiled code took 64 ms instead of 10 for a text of 32,768
tokens.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Columns of `nodes`. START: position of the latest leaf below, where the string begins. DEPTH: tokens of the string.
# LINK: node of the string without its first token. COUNT: leaves below, the earlier occurrences of the string. BEST: of
# children in the vocabulary, the one with the highest count, of equal ones the latest. FIRST: an edge.
START, DEPTH, LINK, COUNT, PARENT, BEST, FIRST, NUM_COLUMNS = range(8)
# Columns of `edges`, a hash table with linear probing. CHILD: 0 in an empty slot. NEXT: next edge of the same node, -1
# for none.
CHILD, NEXT = 0, 1
# Entries of `state`. PENDING: number of suffixes without a leaf; the longest of them ends LENGTH tokens below node AT.
# UNLINKED: the latest node, without its LINK. IS_BEGUN: whether the next token is written, but not all of its leaves.
NUM_TOKENS, NUM_NODES, NUM_EDGES, PENDING, AT, LENGTH, UNLINKED, IS_BEGUN, NUM_STATE = range(9)
# Maximum ancestors whose counts a new leaf updates, so that long runs of one token cost little; others stay too low.
MAX_ANCESTORS = 64
# Maximum load of the hash table, in eighths.
MAX_LOAD = 6


class Tree(NamedTuple):
    """The arrays of a tree.

    Attributes:
        tokens: [capacity] int32, the text.
        parents: [capacity] int32, parent of each leaf.
        nodes: [node capacity, NUM_COLUMNS] int32, internal nodes.
        edges: [slots, 2] int32, hash table of edges.
        state: [NUM_STATE] int64, sizes and the match.
    """

    tokens: Int32s
    parents: Int32s
    nodes: Int32s
    edges: Int32s
    state: Int64s


@compiled
def start_of(nodes: Int32s, child: int) -> int:
    """Returns the position at which the latest occurrence of a child's string begins."""
    return int(-child - 1 if child < 0 else nodes[child, START])


@compiled
def count_of(nodes: Int32s, child: int) -> int:
    """Returns the number of leaves below a child; 1 for a leaf."""
    return int(1 if child < 0 else nodes[child, COUNT])


@compiled
def _parent_of(parents: Int32s, nodes: Int32s, child: int) -> int:
    return int(parents[-child - 1] if child < 0 else nodes[child, PARENT])


@compiled
def _slot(tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, node: int, token: int) -> int:
    """Returns the slot of the edge of `node` that begins with `token`, or the empty slot for it."""
    key = (node * 0x1E3779B97F4A7C15) ^ ((token + 1) * 0x2545F4914F6CDD1D)
    key = (key ^ (key >> 29)) * 0x3F58476D1CE4E5B9
    slot = (((key >> 32) & 0xFFFFFFFF) * edges.shape[0]) >> 32
    depth = nodes[node, DEPTH]
    while True:
        child = edges[slot, CHILD]
        if child == 0:
            break
        if _parent_of(parents, nodes, child) == node and tokens[start_of(nodes, child) + depth] == token:
            break
        slot += 1
        if slot == edges.shape[0]:
            slot = 0
    return int(slot)


@compiled
def find_child(tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, node: int, token: int) -> int:
    """Returns the child on the edge that begins with `token`; 0 for none."""
    return int(edges[_slot(tokens, parents, nodes, edges, node, token), CHILD])


@compiled
def _add_edge(
    tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s, node: int, token: int, child: int
) -> None:
    slot = _slot(tokens, parents, nodes, edges, node, token)
    edges[slot, CHILD] = child
    edges[slot, NEXT] = nodes[node, FIRST]
    nodes[node, FIRST] = slot
    state[NUM_EDGES] += 1


@compiled
def _count(tokens: Int32s, nodes: Int32s, leaf: int, node: int, vocab_size: int) -> None:
    """Updates the counts of a new leaf's ancestors."""
    child = -leaf - 1
    for _ in range(MAX_ANCESTORS):
        nodes[node, COUNT] += 1
        nodes[node, START] = leaf
        best, token = nodes[node, BEST], tokens[leaf + nodes[node, DEPTH]]
        if 0 <= token < vocab_size and (best == 0 or count_of(nodes, child) >= count_of(nodes, best)):
            nodes[node, BEST] = child
        if node == 0:
            break
        child, node = node, nodes[node, PARENT]


@compiled
def _split(
    tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s, node: int, first: int, length: int
) -> int:
    """Inserts a node `length` tokens along the edge of `node` that begins with `first`, and returns it."""
    middle, slot = state[NUM_NODES], _slot(tokens, parents, nodes, edges, node, first)
    child, depth = edges[slot, CHILD], nodes[node, DEPTH] + length
    start = start_of(nodes, child)
    state[NUM_NODES] += 1
    nodes[middle, START], nodes[middle, DEPTH], nodes[middle, LINK] = start, depth, 0
    nodes[middle, COUNT], nodes[middle, PARENT] = count_of(nodes, child), node
    nodes[middle, BEST], nodes[middle, FIRST] = 0, -1
    edges[slot, CHILD] = middle
    if nodes[node, BEST] == child:
        nodes[node, BEST] = middle
    if child < 0:
        parents[-child - 1] = middle
    else:
        nodes[child, PARENT] = middle
    _add_edge(tokens, parents, nodes, edges, state, middle, tokens[start + depth], child)
    return int(middle)


@compiled
def _insert(tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s, vocab_size: int) -> bool:
    """Adds leaves for pending suffixes with a new next token; returns False if arrays are full."""
    position = state[NUM_TOKENS]
    token = tokens[position]
    while state[PENDING] > 0:
        node, length = state[AT], state[LENGTH]
        child = find_child(tokens, parents, nodes, edges, node, tokens[position - length])
        if child > 0 and length >= nodes[child, DEPTH] - nodes[node, DEPTH]:
            state[AT], state[LENGTH] = child, length - (nodes[child, DEPTH] - nodes[node, DEPTH])
            continue
        if child != 0:
            at = start_of(nodes, child) + nodes[node, DEPTH] + length
            if tokens[at] == token:
                if state[UNLINKED] > 0:
                    nodes[state[UNLINKED], LINK] = node
                state[LENGTH] = length + 1
                break
        if state[NUM_NODES] == nodes.shape[0] or 8 * (state[NUM_EDGES] + 2) > MAX_LOAD * edges.shape[0]:
            return False
        owner, leaf = node, position - state[PENDING] + 1
        if child != 0:
            known = tokens[at]
            owner = _split(tokens, parents, nodes, edges, state, node, tokens[position - length], length)
            if 0 <= known < vocab_size:
                nodes[owner, BEST] = child
        parents[leaf] = owner
        _add_edge(tokens, parents, nodes, edges, state, owner, token, -leaf - 1)
        _count(tokens, nodes, leaf, owner, vocab_size)
        if state[UNLINKED] > 0:
            nodes[state[UNLINKED], LINK] = owner
        state[UNLINKED] = owner if child != 0 else 0
        state[PENDING] -= 1
        if node != 0:
            state[AT] = nodes[node, LINK]
        elif length > 0:
            state[LENGTH] = length - 1
    return True


@compiled
def extend(
    tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s, new_tokens: Int32s, vocab_size: int
) -> int:
    """Appends tokens to the text; returns their number, less than given if arrays are full."""
    for index in range(new_tokens.shape[0]):
        if state[IS_BEGUN] == 0:
            if state[NUM_TOKENS] == tokens.shape[0]:
                return index
            tokens[state[NUM_TOKENS]] = new_tokens[index]
            state[PENDING] += 1
            state[UNLINKED] = 0
            state[IS_BEGUN] = 1
        if not _insert(tokens, parents, nodes, edges, state, vocab_size):
            return index
        state[NUM_TOKENS] += 1
        state[IS_BEGUN] = 0
    return int(new_tokens.shape[0])


@compiled
def rehash(tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s) -> None:
    """Enters all edges into an empty table."""
    num_leaves = state[NUM_TOKENS] + state[IS_BEGUN] - state[PENDING]
    state[NUM_EDGES] = 0
    nodes[: state[NUM_NODES], FIRST] = -1
    for child in range(-num_leaves, state[NUM_NODES]):
        if child != 0:
            parent = _parent_of(parents, nodes, child)
            _add_edge(
                tokens,
                parents,
                nodes,
                edges,
                state,
                parent,
                tokens[start_of(nodes, child) + nodes[parent, DEPTH]],
                child,
            )
