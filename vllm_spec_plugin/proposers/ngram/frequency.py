"""Counts n-grams over the last tokens of a request's text."""

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.proposers.ngram import backoff, trie
from vllm_spec_plugin.proposers.ngram.trie import Int32s
from vllm_spec_plugin.verification.draft_probs import SparseProbs

MAX_SUPPORT = 64


class FrequencyTables:
    """Drafts by the counts of continuations of the last tokens, backing off to shorter contexts.

    The counts are exactly those of the window's text.

    Memory: at most window * max_order nodes of 36 bytes, with one to two hash buckets of 4 bytes each, in arrays that
    grow by doubling; and 4 bytes per token of window.
    """

    def __init__(self, min_order: int, max_order: int, window: int, vocab_size: int) -> None:
        self._min_order, self._vocab_size = min_order, vocab_size
        self._max_nodes = window * max_order
        self._ring: Int32s = np.empty(window, np.int32)
        self._start(max_order, position=0)

    def _start(self, max_order: int, position: int) -> None:
        self._nodes: Int32s = np.zeros((1, trie.NUM_COLUMNS), np.int32)
        self._buckets: Int32s = np.zeros(1, np.int32)
        self._contexts: Int32s = np.zeros(max_order, np.int32)
        self._state = np.zeros(trie.NUM_STATE, np.int64)
        self._state[trie.BEGIN] = self._state[trie.END] = position

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the text, those before the window included."""
        return int(self._state[trie.END])

    @property
    def last_token(self) -> int:
        """The last token of the text, which must not be empty."""
        return int(self._ring[(self.num_tokens - 1) % len(self._ring)])

    @property
    def text(self) -> Int32s:
        """[any], tokens of the window, in order."""
        first, past = int(self._state[trie.BEGIN]), int(self._state[trie.END])
        window: Int32s = self._ring[np.arange(first, past) % len(self._ring)]
        return window

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self._nodes.nbytes + self._buckets.nbytes + self._ring.nbytes

    def counts(self) -> dict[tuple[int, ...], int]:
        """Returns the number of occurrences in the window of each n-gram of 1 to max_order tokens."""
        counts: dict[tuple[int, ...], int] = {}
        for row in self._nodes[1 : self._state[trie.USED] + 1]:
            if row[trie.COUNT] > 0:
                node, ngram = row, [int(row[trie.TOKEN])]
                while node[trie.PARENT]:
                    node = self._nodes[node[trie.PARENT]]
                    ngram.insert(0, int(node[trie.TOKEN]))
                counts[tuple(ngram)] = int(row[trie.COUNT])
        return counts

    def extend(self, new_tokens: Int32s) -> None:
        """Appends tokens to the text: [num_new_tokens], contiguous."""
        if len(new_tokens) >= len(self._ring):
            # Nothing of the window stays: counting the new one is faster than evicting.
            self._start(len(self._contexts), self.num_tokens + len(new_tokens) - len(self._ring))
            new_tokens = new_tokens[-len(self._ring) :]
        self._reserve(len(new_tokens) * len(self._contexts))
        trie.extend(self._nodes, self._buckets, self._ring, self._contexts, self._state, new_tokens, self._vocab_size)

    def _reserve(self, num_nodes: int) -> None:
        """Reserves memory for `num_nodes` more nodes, up to the window's maximum."""
        needed = 1 + min(int(self._state[trie.LIVE]) + num_nodes, self._max_nodes)
        if needed <= len(self._nodes):
            return
        capacity = min(max(needed, 2 * len(self._nodes)), 1 + self._max_nodes)
        grown = np.zeros((capacity, trie.NUM_COLUMNS), np.int32)
        grown[: len(self._nodes)] = self._nodes
        self._nodes, self._buckets = grown, np.zeros(1 << (capacity - 1).bit_length(), np.int32)
        trie.rehash(self._nodes, self._buckets, self._state)

    def draft_greedy(self, num_draft_tokens: int) -> list[int]:
        """Returns the chain of most frequent continuations, of equal ones the latest; at most `num_draft_tokens`."""
        draft = np.empty(num_draft_tokens, np.int32)
        length = backoff.draft_greedy(self._nodes, self._buckets, self._contexts.copy(), self._min_order, draft)
        chain: list[int] = draft[:length].tolist()
        return chain

    def draft_sampled(self, uniforms: npt.NDArray[np.float64]) -> tuple[list[int], SparseProbs]:
        """Samples a chain by the counts.

        Args:
            uniforms: [K] float64 in [0, 1).

        Returns:
            At most K tokens, and their q.
        """
        draft = np.empty(len(uniforms), np.int32)
        tokens = np.empty((len(uniforms), MAX_SUPPORT), np.int64)
        probs = np.empty((len(uniforms), MAX_SUPPORT), np.float32)
        length, width = backoff.draft_sampled(
            self._nodes, self._buckets, self._contexts.copy(), self._min_order, uniforms, tokens, probs, draft
        )
        rows = SparseProbs(
            torch.from_numpy(tokens[:length, :width].copy()), torch.from_numpy(probs[:length, :width].copy())
        )
        return draft[:length].tolist(), rows
