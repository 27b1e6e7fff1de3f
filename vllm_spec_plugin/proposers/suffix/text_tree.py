"""The suffix tree of a growing text, in growing arrays."""

import numpy as np

from vllm_spec_plugin.proposers.suffix import drafting, tree
from vllm_spec_plugin.proposers.suffix.tree import Int32s, Int64s, Tree

# Initial capacity of the arrays, and the divisor of a length by which they grow.
_FIRST_CAPACITY = 64
_GROWTH = 8


class TextTree:
    """Drafts continuations of earlier occurrences of a text's suffix, of any length.

    Memory: 8 bytes per token, 28 per internal node and 11 to 12 per edge, and up to an eighth more of each. Text has
    about 0.4 nodes and 1.4 edges per token, at most 1 and 2.

    Args:
        vocab_size: size of the vocabulary; only tokens below are drafted, others may occur in texts.

    Attributes:
        arrays: arrays of the tree; another object after `extend`.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        nodes = np.zeros((_FIRST_CAPACITY, tree.NUM_COLUMNS), np.int32)
        nodes[0, tree.FIRST] = -1
        state = np.zeros(tree.NUM_STATE, np.int64)
        state[tree.NUM_NODES] = 1
        empty = np.zeros(_FIRST_CAPACITY, np.int32)
        self.arrays = Tree(empty, empty.copy(), nodes, np.zeros((2 * _FIRST_CAPACITY, 2), np.int32), state)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the text."""
        return int(self.arrays.state[tree.NUM_TOKENS])

    @property
    def text(self) -> Int32s:
        """[num_tokens], the text; read-only."""
        return self.arrays.tokens[: self.num_tokens]

    @property
    def num_matched(self) -> int:
        """Length of the longest suffix that occurred before, in tokens."""
        return int(self.arrays.state[tree.PENDING])

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return sum(array.nbytes for array in self.arrays)

    def extend(self, new_tokens: Int32s) -> None:
        """Appends tokens to the text: [num_new_tokens], contiguous."""
        divisor = _GROWTH
        while True:
            done = tree.extend(*self.arrays, new_tokens, self._vocab_size)
            new_tokens = new_tokens[done:]
            if not len(new_tokens):
                return
            self._grow(len(new_tokens), divisor)
            # One token that ends a long match adds as many leaves as the match had tokens.
            divisor = _GROWTH if done else max(divisor // 2, 4)

    def draft_after(
        self, node: int, length: int, matched: "TextTree", num_draft_tokens: int, min_probability: float
    ) -> list[int]:
        """Returns the most frequent continuation of a match.

        Args:
            node: node of the match in this tree.
            length: tokens of the match below the node.
            matched: tree of the text whose suffix is matched; this one, or another.
            num_draft_tokens: maximum tokens.
            min_probability: the draft ends before its estimated probability falls below this.
        """
        draft = np.empty(num_draft_tokens, np.int32)
        text = matched.arrays.tokens, matched.num_tokens
        count = drafting.draft_certain(*self.arrays, node, length, *text, self._vocab_size, min_probability, draft)
        chain: list[int] = draft[:count].tolist()
        return chain

    def match_end(self) -> tuple[int, int]:
        """Returns the end of the longest match: a node, and the tokens below it."""
        state: Int64s = self.arrays.state
        return int(state[tree.AT]), int(state[tree.LENGTH])

    def _grow(self, num_new_tokens: int, divisor: int) -> None:
        """Enlarges the arrays that are full, each by a share of its length or for the new tokens."""
        text, parents, nodes, edges, state = self.arrays
        num_tokens, num_nodes, num_edges = (
            int(state[entry]) for entry in (tree.NUM_TOKENS, tree.NUM_NODES, tree.NUM_EDGES)
        )
        if num_tokens == len(text):
            capacity = num_tokens + max(num_new_tokens, num_tokens // divisor)
            text, parents = _longer(text, capacity), _longer(parents, capacity)
        if num_nodes == len(nodes):
            expected = max(num_nodes, num_tokens // _GROWTH) * num_new_tokens // num_tokens
            nodes = _longer(nodes, num_nodes + max(num_nodes // divisor, expected))
        is_full = 8 * (num_edges + 2) > tree.MAX_LOAD * len(edges)
        if is_full:
            # At the rate so far, and at least one per token: entering all again takes as long as building the tree.
            expected = max(num_edges, num_tokens) * num_new_tokens // max(num_tokens, 1)
            more = max(num_edges // divisor, expected, 2)
            edges = np.zeros(((num_edges + more) * 8 // tree.MAX_LOAD + 1, 2), np.int32)
        self.arrays = Tree(text, parents, nodes, edges, state)
        if is_full:
            tree.rehash(*self.arrays)


def _longer(array: Int32s, capacity: int) -> Int32s:
    grown = np.zeros((capacity, *array.shape[1:]), np.int32)
    grown[: len(array)] = array
    return grown
