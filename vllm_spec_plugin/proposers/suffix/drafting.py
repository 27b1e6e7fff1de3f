"""Matches a text with a suffix tree, and drafts the continuation of the match; compiled code only.

A match is a position in the tree: `length` tokens below `node`, on the edge of the text's last tokens.
"""

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.proposers.suffix.tree import (
    BEST,
    COUNT,
    DEPTH,
    LINK,
    NUM_TOKENS,
    Int32s,
    Int64s,
    count_of,
    find_child,
    start_of,
)

# Weight of the assumption that a token is wrong, in matched tokens; measured, see docs/suffix.md.
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
