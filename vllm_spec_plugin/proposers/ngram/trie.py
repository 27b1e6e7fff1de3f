"""Counts all n-grams in a sliding window, by a trie in one array; compiled code only.

A node is an n-gram, its parent the n-gram without the last token, its children the n-grams with one more. A child is
found by hashing (parent node, token) and compared with both, so n-grams never share a node, whatever their hashes.
"""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Columns of `nodes`, [capacity, NUM_COLUMNS] int32. Row 0 is the root, the empty n-gram; no node has it as a child, so
# 0 in a link is none. LAST: position of the latest occurrence's last token. BEST: child with the highest count, of
# equal ones the latest; 0 if it is to be searched.
PARENT, TOKEN, COUNT, LAST, FIRST_CHILD, NEXT, PREVIOUS, BEST, CHAIN, NUM_COLUMNS = range(10)
# Entries of `state`. BEGIN, END: positions of the window, END excluded. LIVE: number of nodes without the root. USED:
# highest row used so far. FREE: first row of the list of free rows, linked by CHAIN.
BEGIN, END, LIVE, USED, FREE, NUM_STATE = range(6)


@compiled
def _bucket(buckets: Int32s, parent: int, token: int) -> int:
    key = (parent * 0x1E3779B97F4A7C15) ^ ((token + 1) * 0x2545F4914F6CDD1D)
    key = (key ^ (key >> 29)) * 0x3F58476D1CE4E5B9
    return int((key ^ (key >> 32)) & (buckets.shape[0] - 1))


@compiled
def find_child(nodes: Int32s, buckets: Int32s, parent: int, token: int) -> int:
    """Returns the node of `parent`'s n-gram followed by `token`; 0 without one."""
    node = buckets[_bucket(buckets, parent, token)]
    while node != 0 and (nodes[node, TOKEN] != token or nodes[node, PARENT] != parent):
        node = nodes[node, CHAIN]
    return int(node)


@compiled
def _add_child(nodes: Int32s, buckets: Int32s, state: Int64s, parent: int, token: int, vocab_size: int) -> int:
    node = state[FREE]
    if node != 0:
        state[FREE] = nodes[node, CHAIN]
    else:
        state[USED] += 1
        node = state[USED]
    state[LIVE] += 1
    nodes[node] = 0
    nodes[node, PARENT], nodes[node, TOKEN] = parent, token
    bucket = _bucket(buckets, parent, token)
    nodes[node, CHAIN] = buckets[bucket]
    buckets[bucket] = node
    # Ids that cannot be generated (multimodal placeholders) are context, never drafts.
    if 0 <= token < vocab_size:
        first = nodes[parent, FIRST_CHILD]
        nodes[node, NEXT] = first
        nodes[first, PREVIOUS] = node
        nodes[parent, FIRST_CHILD] = node
    return int(node)


@compiled
def _remove(nodes: Int32s, buckets: Int32s, state: Int64s, node: int) -> None:
    parent = nodes[node, PARENT]
    before, after = nodes[node, PREVIOUS], nodes[node, NEXT]
    if before != 0:
        nodes[before, NEXT] = after
    elif nodes[parent, FIRST_CHILD] == node:
        nodes[parent, FIRST_CHILD] = after
    nodes[after, PREVIOUS] = before
    bucket = _bucket(buckets, parent, nodes[node, TOKEN])
    if buckets[bucket] == node:
        buckets[bucket] = nodes[node, CHAIN]
    else:
        other = buckets[bucket]
        while nodes[other, CHAIN] != node:
            other = nodes[other, CHAIN]
        nodes[other, CHAIN] = nodes[node, CHAIN]
    nodes[node, COUNT] = 0
    nodes[node, CHAIN] = state[FREE]
    state[FREE] = node
    state[LIVE] -= 1


@compiled
def _evict(nodes: Int32s, buckets: Int32s, ring: Int32s, path: Int32s, state: Int64s) -> None:
    """Removes the window's first token, and the n-grams that start with it."""
    node = 0
    for depth in range(path.shape[0]):
        node = find_child(nodes, buckets, node, ring[(state[BEGIN] + depth) % ring.shape[0]])
        path[depth] = node
    for depth in range(path.shape[0] - 1, -1, -1):
        node = path[depth]
        nodes[node, COUNT] -= 1
        if nodes[nodes[node, PARENT], BEST] == node:
            nodes[nodes[node, PARENT], BEST] = 0
        if nodes[node, COUNT] == 0:
            _remove(nodes, buckets, state, node)
    state[BEGIN] += 1


@compiled
def extend(
    nodes: Int32s,
    buckets: Int32s,
    ring: Int32s,
    contexts: Int32s,
    state: Int64s,
    new_tokens: Int32s,
    vocab_size: int,
) -> None:
    """Advances the window over `new_tokens`; `contexts[n]` is the node of the last n tokens, 0 for none."""
    path = np.empty(contexts.shape[0], np.int32)
    for token in new_tokens:
        if state[END] - state[BEGIN] == ring.shape[0]:
            _evict(nodes, buckets, ring, path, state)
        for length in range(contexts.shape[0] - 1, -1, -1):
            parent = contexts[length]
            if length > 0 and parent == 0:
                continue
            node = find_child(nodes, buckets, parent, token)
            if node == 0:
                node = _add_child(nodes, buckets, state, parent, token, vocab_size)
            nodes[node, COUNT] += 1
            nodes[node, LAST] = state[END]
            best = nodes[parent, BEST]
            if best != 0 and 0 <= token < vocab_size and nodes[node, COUNT] >= nodes[best, COUNT]:
                nodes[parent, BEST] = node
            if length + 1 < contexts.shape[0]:
                contexts[length + 1] = node
        ring[state[END] % ring.shape[0]] = token
        state[END] += 1


@compiled
def rehash(nodes: Int32s, buckets: Int32s, state: Int64s) -> None:
    """Enters all nodes in empty `buckets`."""
    for node in range(1, state[USED] + 1):
        if nodes[node, COUNT] > 0:
            bucket = _bucket(buckets, nodes[node, PARENT], nodes[node, TOKEN])
            nodes[node, CHAIN] = buckets[bucket]
            buckets[bucket] = node
