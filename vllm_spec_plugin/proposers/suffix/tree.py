"""A suffix tree that grows token by token (Ukkonen, Algorithmica 14, 1995), with counts; compiled code only.

A node stands for the string of tokens on the way to it. Internal nodes are rows of `nodes`; the root is row 0, which is
nobody's child, so 0 in a link means none. A leaf is the text from one position on, and is written -(position + 1). The
last suffixes of the text get their leaves once something new follows them: until then they are pending, and the longest
of them is the longest end of the text that occurred before.

An edge is found by hashing (node, first token) and accepted only if both are equal: hashes that collide cost time only.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Columns of `nodes`. START: where the latest leaf below begins, which spells the string. DEPTH: tokens of the string.
# LINK: the node of the string without its first token. COUNT: leaves below, the earlier occurrences of the string.
# BEST: the child with the highest count, the latest among equals, of those that can be drafted. FIRST: an edge.
START, DEPTH, LINK, COUNT, PARENT, BEST, FIRST, NUM_COLUMNS = range(8)
# Columns of `edges`, a hash table with linear probing. CHILD: 0 where the slot is empty. NEXT: another edge of the same
# node, -1 if there is none.
CHILD, NEXT = 0, 1
# Entries of `state`. PENDING suffixes have no leaf. The longest of them ends LENGTH tokens below node AT. UNLINKED: the
# node that was made last, whose LINK is not known yet. IS_BEGUN: the next token is written, but not all of its leaves.
NUM_TOKENS, NUM_NODES, NUM_EDGES, PENDING, AT, LENGTH, UNLINKED, IS_BEGUN, NUM_STATE = range(9)
# Above the nodes that a leaf is counted in, so that long runs of one token cost no time; others count too little.
MOST_ANCESTORS = 64
# Edges per slot at most, in eighths.
MOST_LOAD = 6


class Tree(NamedTuple):
    """The arrays of a tree.

    Attributes:
        text: [capacity] int32, the tokens.
        parents: [capacity] int32, per leaf the node above.
        nodes: [node capacity, NUM_COLUMNS] int32.
        edges: [slots, 2] int32.
        state: [NUM_STATE] int64.
    """

    text: Int32s
    parents: Int32s
    nodes: Int32s
    edges: Int32s
    state: Int64s


@compiled
def start_of(tree: Tree, child: int) -> int:
    """Where the latest occurrence of a child's string begins."""
    return int(-child - 1 if child < 0 else tree.nodes[child, START])


@compiled
def count_of(tree: Tree, child: int) -> int:
    """How many leaves a child has or is."""
    return int(1 if child < 0 else tree.nodes[child, COUNT])


@compiled
def _parent_of(tree: Tree, child: int) -> int:
    return int(tree.parents[-child - 1] if child < 0 else tree.nodes[child, PARENT])


@compiled
def _slot(tree: Tree, node: int, token: int) -> int:
    """Where the edge of `node` that begins with `token` is, or belongs."""
    key = (node * 0x1E3779B97F4A7C15) ^ ((token + 1) * 0x2545F4914F6CDD1D)
    key = (key ^ (key >> 29)) * 0x3F58476D1CE4E5B9
    slot = (((key >> 32) & 0xFFFFFFFF) * tree.edges.shape[0]) >> 32
    depth = tree.nodes[node, DEPTH]
    while True:
        child = tree.edges[slot, CHILD]
        if child == 0:
            break
        if _parent_of(tree, child) == node and tree.text[start_of(tree, child) + depth] == token:
            break
        slot += 1
        if slot == tree.edges.shape[0]:
            slot = 0
    return int(slot)


@compiled
def find_child(tree: Tree, node: int, token: int) -> int:
    """The child on the edge that begins with `token`; 0 if there is none."""
    return int(tree.edges[_slot(tree, node, token), CHILD])


@compiled
def _add_edge(tree: Tree, node: int, token: int, child: int) -> None:
    slot = _slot(tree, node, token)
    tree.edges[slot, CHILD] = child
    tree.edges[slot, NEXT] = tree.nodes[node, FIRST]
    tree.nodes[node, FIRST] = slot
    tree.state[NUM_EDGES] += 1


@compiled
def _count(tree: Tree, leaf: int, node: int, vocab_size: int) -> None:
    """Counts a new leaf in the nodes above it."""
    child = -leaf - 1
    for _ in range(MOST_ANCESTORS):
        tree.nodes[node, COUNT] += 1
        tree.nodes[node, START] = leaf
        best, token = tree.nodes[node, BEST], tree.text[leaf + tree.nodes[node, DEPTH]]
        if 0 <= token < vocab_size and (best == 0 or count_of(tree, child) >= count_of(tree, best)):
            tree.nodes[node, BEST] = child
        if node == 0:
            break
        child, node = node, tree.nodes[node, PARENT]


@compiled
def _split(tree: Tree, node: int, first: int, length: int) -> int:
    """Puts a new node `length` tokens along the edge of `node` that begins with `first`; returns it."""
    middle, slot = tree.state[NUM_NODES], _slot(tree, node, first)
    child, depth = tree.edges[slot, CHILD], tree.nodes[node, DEPTH] + length
    start = start_of(tree, child)
    tree.state[NUM_NODES] += 1
    tree.nodes[middle, START], tree.nodes[middle, DEPTH], tree.nodes[middle, LINK] = start, depth, 0
    tree.nodes[middle, COUNT], tree.nodes[middle, PARENT] = count_of(tree, child), node
    tree.nodes[middle, BEST], tree.nodes[middle, FIRST] = 0, -1
    tree.edges[slot, CHILD] = middle
    if tree.nodes[node, BEST] == child:
        tree.nodes[node, BEST] = middle
    if child < 0:
        tree.parents[-child - 1] = middle
    else:
        tree.nodes[child, PARENT] = middle
    _add_edge(tree, middle, tree.text[start + depth], child)
    return int(middle)


@compiled
def _insert(tree: Tree, vocab_size: int) -> bool:
    """Adds leaves for the pending suffixes that the next token has not followed before; False if room runs out."""
    text, nodes, state = tree.text, tree.nodes, tree.state
    position = state[NUM_TOKENS]
    token = text[position]
    while state[PENDING] > 0:
        node, length = state[AT], state[LENGTH]
        child = find_child(tree, node, text[position - length])
        if child > 0 and length >= nodes[child, DEPTH] - nodes[node, DEPTH]:
            state[AT], state[LENGTH] = child, length - (nodes[child, DEPTH] - nodes[node, DEPTH])
            continue
        if child != 0:
            at = start_of(tree, child) + nodes[node, DEPTH] + length
            if text[at] == token:
                if state[UNLINKED] > 0:
                    nodes[state[UNLINKED], LINK] = node
                state[LENGTH] = length + 1
                break
        if state[NUM_NODES] == nodes.shape[0] or 8 * (state[NUM_EDGES] + 2) > MOST_LOAD * tree.edges.shape[0]:
            return False
        owner, leaf = node, position - state[PENDING] + 1
        if child != 0:
            known = text[at]
            owner = _split(tree, node, text[position - length], length)
            if 0 <= known < vocab_size:
                nodes[owner, BEST] = child
        tree.parents[leaf] = owner
        _add_edge(tree, owner, token, -leaf - 1)
        _count(tree, leaf, owner, vocab_size)
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
def extend(tree: Tree, tokens: Int32s, vocab_size: int) -> int:
    """Takes in the tokens that follow the text; returns how many, fewer than there are where room runs out."""
    state = tree.state
    for index in range(tokens.shape[0]):
        if state[IS_BEGUN] == 0:
            if state[NUM_TOKENS] == tree.text.shape[0]:
                return index
            tree.text[state[NUM_TOKENS]] = tokens[index]
            state[PENDING] += 1
            state[UNLINKED] = 0
            state[IS_BEGUN] = 1
        if not _insert(tree, vocab_size):
            return index
        state[NUM_TOKENS] += 1
        state[IS_BEGUN] = 0
    return int(tokens.shape[0])


@compiled
def rehash(tree: Tree) -> None:
    """Enters all edges into an empty table."""
    num_leaves = tree.state[NUM_TOKENS] + tree.state[IS_BEGUN] - tree.state[PENDING]
    tree.state[NUM_EDGES] = 0
    tree.nodes[: tree.state[NUM_NODES], FIRST] = -1
    for child in range(-num_leaves, tree.state[NUM_NODES]):
        if child != 0:
            parent = _parent_of(tree, child)
            _add_edge(tree, parent, tree.text[start_of(tree, child) + tree.nodes[parent, DEPTH]], child)
