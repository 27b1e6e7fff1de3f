"""Matches a text with a suffix tree, and drafts the continuation of the match; compiled code only.

A match is a position in the tree: `length` tokens below `node`, on the edge of the text's last tokens.
"""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.proposers.suffix.tree import (
    BEST,
    CHILD,
    COUNT,
    DEPTH,
    FIRST,
    LINK,
    NEXT,
    NUM_TOKENS,
    Int32s,
    Int64s,
    count_of,
    find_child,
    start_of,
)

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]

# Weight of the assumption that a token is wrong, in matched tokens; measured, see docs/design/suffix.md.
DOUBT = 3


@compiled
def _chance(count: int, total: int, matched: int) -> float:
    """Estimates the probability of tokens that followed `count` of `total` occurrences of the last `matched` tokens."""
    return count * matched / (total * matched + DOUBT)


@compiled
def _descend(
    tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, node: int, length: int, text: Int32s, end: int
) -> tuple[int, int, int]:
    """Descends to the deepest node of a match; returns it, the length below it, and the child on the edge or 0."""
    while length > 0:
        child = find_child(tokens, parents, nodes, edges, node, text[end - length])
        if child < 0 or length < nodes[child, DEPTH] - nodes[node, DEPTH]:
            return node, length, child
        length -= nodes[child, DEPTH] - nodes[node, DEPTH]
        node = child
    return node, 0, 0


@compiled
def match(
    tokens: Int32s,
    parents: Int32s,
    nodes: Int32s,
    edges: Int32s,
    state: Int64s,
    at: Int64s,
    text: Int32s,
    begin: int,
    end: int,
) -> int:
    """Extends the longest match of text[:begin] to that of text[:end].

    Args:
        tokens: this and all up to `state`: arrays of a `Tree` of other texts, without pending suffixes.
        at: [2] int64, node and length of the match; changed in place.
        text: [any] int32, text whose suffix is matched.
        begin: index of the first new token.
        end: index after the last new token.

    Returns:
        Length of the match, in tokens.
    """
    node, length = at[0], at[1]
    for position in range(begin, end):
        token = text[position]
        while True:
            node, length, child = _descend(tokens, parents, nodes, edges, node, length, text, position)
            if length == 0:
                if find_child(tokens, parents, nodes, edges, node, token) != 0:
                    length = 1
                    break
            elif tokens[start_of(nodes, child) + nodes[node, DEPTH] + length] == token:
                length += 1
                break
            if node != 0:
                node = nodes[node, LINK]
            elif length > 0:
                length -= 1
            else:
                break
    at[0], at[1] = node, length
    return int(nodes[node, DEPTH] + length)


@compiled
def longest_from(
    tokens: Int32s, parents: Int32s, nodes: Int32s, edges: Int32s, state: Int64s, text: Int32s, begin: int
) -> int:
    """Returns the end of the longest part of `text` from `begin` on that is in the tree."""
    node, position = 0, begin
    while position < text.shape[0]:
        child = find_child(tokens, parents, nodes, edges, node, text[position])
        if child == 0:
            break
        at = start_of(nodes, child) + nodes[node, DEPTH]
        past = state[NUM_TOKENS] if child < 0 else at + nodes[child, DEPTH] - nodes[node, DEPTH]
        while at < past and position < text.shape[0] and tokens[at] == text[position]:
            at, position = at + 1, position + 1
        if child < 0 or at < past:
            break
        node = child
    return int(position)


@compiled
def _token_at(tokens: Int32s, num_tokens: int, position: int, draft: Int32s) -> int:
    """Returns a token of the tree's text followed by the draft."""
    return int(tokens[position] if position < num_tokens else draft[position - num_tokens])


@compiled
def draft_certain(
    tokens: Int32s,
    parents: Int32s,
    nodes: Int32s,
    edges: Int32s,
    state: Int64s,
    node: int,
    length: int,
    text: Int32s,
    end: int,
    vocab_size: int,
    min_probability: float,
    draft: Int32s,
) -> int:
    """Fills `draft` with the most frequent continuation of a match; returns the number of tokens.

    Args:
        tokens: this and all up to `state`: arrays of the `Tree` with the match.
        node: node of the match.
        length: tokens of the match below the node.
        text: [any] int32, text whose suffix is matched.
        end: length of `text`.
        vocab_size: size of the vocabulary; the draft ends before a token outside it.
        min_probability: the draft ends before its probability falls below this.
        draft: [K] int32, written.
    """
    node, length, child = _descend(tokens, parents, nodes, edges, node, length, text, end)
    matched, probability = nodes[node, DEPTH] + length, 1.0
    for index in range(draft.shape[0]):
        if length == 0:
            child = nodes[node, BEST]
            if child == 0:
                return index
        count = count_of(nodes, child)
        # Nodes far above a leaf may have too low counts, see `MAX_ANCESTORS`.
        total = max(nodes[node, COUNT], count) if length == 0 else count
        token = _token_at(tokens, state[NUM_TOKENS], start_of(nodes, child) + nodes[node, DEPTH] + length, draft)
        probability *= _chance(count, total, matched + index)
        if token < 0 or token >= vocab_size or probability < min_probability:
            return index
        draft[index] = token
        length += 1
        if child > 0 and nodes[node, DEPTH] + length == nodes[child, DEPTH]:
            node, length = child, 0
    return int(draft.shape[0])


@compiled
def _ranks_before(nodes: Int32s, child: int, other: int) -> bool:
    if count_of(nodes, child) != count_of(nodes, other):
        return bool(count_of(nodes, child) > count_of(nodes, other))
    return bool(start_of(nodes, child) > start_of(nodes, other))


@compiled
def _most_frequent(
    tokens: Int32s, nodes: Int32s, edges: Int32s, node: int, vocab_size: int, top: Int32s
) -> tuple[int, int]:
    """Fills `top` with the most frequent children in descending order; returns their number and total count."""
    size, slot = 0, nodes[node, FIRST]
    while slot >= 0:
        child = edges[slot, CHILD]
        slot = edges[slot, NEXT]
        token = tokens[start_of(nodes, child) + nodes[node, DEPTH]]
        if token < 0 or token >= vocab_size:
            continue
        if size < top.shape[0] or _ranks_before(nodes, child, top[size - 1]):
            size = min(size + 1, top.shape[0])
            rank = size - 1
            while rank > 0 and _ranks_before(nodes, child, top[rank - 1]):
                top[rank] = top[rank - 1]
                rank -= 1
            top[rank] = child
    total = 0
    for rank in range(size):
        total += count_of(nodes, top[rank])
    return size, total


@compiled
def draft_drawn(
    tokens: Int32s,
    parents: Int32s,
    nodes: Int32s,
    edges: Int32s,
    state: Int64s,
    node: int,
    length: int,
    text: Int32s,
    end: int,
    vocab_size: int,
    min_probability: float,
    uniforms: Float64s,
    row_tokens: Int64s,
    row_probs: Float32s,
    draft: Int32s,
) -> tuple[int, int]:
    """Samples a continuation of a match by the counts, and writes its q.

    The draft's length does not depend on the token at its end: the estimated probability is that of all tokens that
    followed, as q has their counts.

    Args:
        tokens: this and all up to `end`: see `draft_certain`.
        vocab_size: size of the vocabulary; the draft ends before a position without a token of it.
        min_probability: the draft ends before its probability falls below this.
        uniforms: [K] float64 in [0, 1).
        row_tokens: [K, any] int64, written: possible tokens of each draft token, padded with the first one.
        row_probs: [K, any] float32, written: their probabilities, 0 for padding.
        draft: [K] int32, written.

    Returns:
        The number of draft tokens, and the maximum number of possible tokens of one.
    """
    node, length, child = _descend(tokens, parents, nodes, edges, node, length, text, end)
    matched, probability = nodes[node, DEPTH] + length, 1.0
    top, widest = np.empty(row_tokens.shape[1], np.int32), 0
    for index in range(draft.shape[0]):
        total = max(nodes[node, COUNT] if length == 0 else count_of(nodes, child), 1)
        probability *= _chance(total, total, matched + index)
        if probability < min_probability:
            return index, widest
        size, depth = 1, nodes[node, DEPTH]
        if length == 0:
            size, total = _most_frequent(tokens, nodes, edges, node, vocab_size, top)
            if size == 0:
                return index, widest
            drawn, below = 0, count_of(nodes, top[0])
            while below <= uniforms[index] * total and drawn < size - 1:
                drawn += 1
                below += count_of(nodes, top[drawn])
            child = top[drawn]
            for rank in range(size):
                row_tokens[index, rank] = tokens[start_of(nodes, top[rank]) + depth]
                row_probs[index, rank] = count_of(nodes, top[rank]) / total
        token = _token_at(tokens, state[NUM_TOKENS], start_of(nodes, child) + depth + length, draft)
        if token < 0 or token >= vocab_size:
            return index, widest
        if length > 0:
            row_tokens[index, 0], row_probs[index, 0] = token, 1.0
        row_tokens[index, size:], row_probs[index, size:] = row_tokens[index, 0], 0.0
        draft[index] = token
        widest = max(widest, size)
        length += 1
        if child > 0 and depth + length == nodes[child, DEPTH]:
            node, length = child, 0
    return int(draft.shape[0]), widest
