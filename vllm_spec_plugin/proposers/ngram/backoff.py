"""Back-off drafting over the trie of counts; compiled code only."""

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
    """The longest context that something followed, -1 if none of at least min_order - 1 tokens."""
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
    """Fills `draft` with the most frequent continuations; moves `contexts`; returns how many tokens."""
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
    """Fills `top` with the most frequent children, best first; returns how many and their total count."""
    size = 0
    node = nodes[context, FIRST_CHILD]
    while node != 0:
        if size < top.shape[0] or _ranks_before(nodes, node, top[size - 1]):
            size = min(size + 1, top.shape[0])
            place = size - 1
            while place > 0 and _ranks_before(nodes, node, top[place - 1]):
                top[place] = top[place - 1]
                place -= 1
            top[place] = node
        node = nodes[node, NEXT]
    total = 0
    for place in range(size):
        total += nodes[top[place], COUNT]
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
    """Fills `draft` and its q rows; moves `contexts`; returns how many tokens and the widest row."""
    max_support = row_tokens.shape[1]
    top = np.empty(max_support, np.int32)
    widest, size, total, previous = 0, 0, 0, -1
    for index in range(draft.shape[0]):
        context = _longest_seen(nodes, contexts, min_order)
        if context < 0:
            return index, widest
        # Without context every token of the chain is drawn from the same row.
        if context != previous:
            size, total = _most_frequent(nodes, context, top)
            previous = context
        drawn, below = 0, nodes[top[0], COUNT]
        while below <= uniforms[index] * total and drawn < size - 1:
            drawn += 1
            below += nodes[top[drawn], COUNT]
        for place in range(max_support):
            row_tokens[index, place] = nodes[top[min(place, size - 1)], TOKEN]
            row_probs[index, place] = nodes[top[place], COUNT] / total if place < size else 0.0
        draft[index] = nodes[top[drawn], TOKEN]
        widest = max(widest, size)
        _advance(nodes, buckets, contexts, draft[index])
    return int(draft.shape[0]), widest
