"""Drafts by backing off over the trie of counts; compiled code only."""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.proposers.ngram.trie import (
    BEST,
    COUNT,
    FIRST_CHILD,
    LAST,
    NEXT,
    TOKEN,
    Int32s,
    Int64s,
    find_child,
)

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]


@compiled
def _ranks_before(nodes: Int32s, node: int, other: int) -> bool:
    if nodes[node, COUNT] != nodes[other, COUNT]:
        return bool(nodes[node, COUNT] > nodes[other, COUNT])
    return bool(nodes[node, LAST] > nodes[other, LAST])


@compiled
def _longest_seen(nodes: Int32s, contexts: Int32s, min_order: int) -> int:
    """Returns the node of the longest context with a continuation; -1 without one of at least min_order - 1 tokens."""
    for length in range(contexts.shape[0] - 1, min_order - 2, -1):
        if (length == 0 or contexts[length] != 0) and nodes[contexts[length], FIRST_CHILD] != 0:
            return int(contexts[length])
    return -1


@compiled
def _advance(nodes: Int32s, buckets: Int32s, contexts: Int32s, token: int) -> None:
    for length in range(contexts.shape[0] - 2, -1, -1):
        known = length == 0 or contexts[length] != 0
        contexts[length + 1] = find_child(nodes, buckets, contexts[length], token) if known else 0


@compiled
def draft_greedy(nodes: Int32s, buckets: Int32s, contexts: Int32s, min_order: int, draft: Int32s) -> int:
    """Fills `draft` with the most frequent continuations, advances `contexts`, and returns the number of tokens."""
    for index in range(draft.shape[0]):
        context = _longest_seen(nodes, contexts, min_order)
        if context < 0:
            return index
        best = nodes[context, BEST]
        if best == 0:
            best = nodes[context, FIRST_CHILD]
            node = nodes[best, NEXT]
            while node != 0:
                if _ranks_before(nodes, node, best):
                    best = node
                node = nodes[node, NEXT]
            nodes[context, BEST] = best
        draft[index] = nodes[best, TOKEN]
        _advance(nodes, buckets, contexts, draft[index])
    return int(draft.shape[0])


@compiled
def _most_frequent(nodes: Int32s, context: int, top: Int32s) -> tuple[int, int]:
    """Fills `top` with the most frequent children in descending order; returns their number and total count."""
    size = 0
    node = nodes[context, FIRST_CHILD]
    while node != 0:
        if size < top.shape[0] or _ranks_before(nodes, node, top[size - 1]):
            size = min(size + 1, top.shape[0])
            rank = size - 1
            while rank > 0 and _ranks_before(nodes, node, top[rank - 1]):
                top[rank] = top[rank - 1]
                rank -= 1
            top[rank] = node
        node = nodes[node, NEXT]
    total = 0
    for rank in range(size):
        total += nodes[top[rank], COUNT]
    return size, total


@compiled
def draft_sampled(
    nodes: Int32s,
    buckets: Int32s,
    contexts: Int32s,
    min_order: int,
    uniforms: Float64s,
    row_tokens: Int64s,
    row_probs: Float32s,
    draft: Int32s,
) -> tuple[int, int]:
    """Samples `draft` and writes its q.

    Args:
        nodes: [capacity, NUM_COLUMNS], the trie.
        buckets: [size], its hash table.
        contexts: [max_order], node of the last n tokens for each n; advanced.
        min_order: minimum n-gram length.
        uniforms: [K] float64 in [0, 1).
        row_tokens: [K, any] int64, written: possible tokens of each draft token, padded with the last one.
        row_probs: [K, any] float32, written: their probabilities, 0 for padding.
        draft: [K] int32, written.

    Returns:
        The number of draft tokens, and the maximum number of possible tokens of one.
    """
    max_support = row_tokens.shape[1]
    top = np.empty(max_support, np.int32)
    widest, size, total, previous = 0, 0, 0, -1
    for index in range(draft.shape[0]):
        context = _longest_seen(nodes, contexts, min_order)
        if context < 0:
            return index, widest
        # Without context all tokens of the chain have the same q.
        if context != previous:
            size, total = _most_frequent(nodes, context, top)
            previous = context
        drawn, below = 0, nodes[top[0], COUNT]
        while below <= uniforms[index] * total and drawn < size - 1:
            drawn += 1
            below += nodes[top[drawn], COUNT]
        for rank in range(max_support):
            row_tokens[index, rank] = nodes[top[min(rank, size - 1)], TOKEN]
            row_probs[index, rank] = nodes[top[rank], COUNT] / total if rank < size else 0.0
        draft[index] = nodes[top[drawn], TOKEN]
        widest = max(widest, size)
        _advance(nodes, buckets, contexts, draft[index])
    return int(draft.shape[0]), widest
