"""Indexes the latest occurrence of every n-gram of a request's text."""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled

Int32s = npt.NDArray[np.int32]

MULTIPLIER = 0x2545F4914F6CDD1D


@compiled
def mix(key: int, token: int) -> int:
    """Returns the hash of an n-gram, given that of all but its first token."""
    key = (key ^ (token + 1)) * MULTIPLIER
    return key ^ (key >> 29)


@compiled
def _find_slot(tokens: Int32s, tables: Int32s, row: int, order: int, end: int, key: int) -> int:
    """Returns the slot of the n-gram tokens[end - order : end], or the empty slot for it."""
    mask = tables.shape[1] - 1
    slot = key & mask
    while True:
        seen = tables[row, slot]
        if seen == 0:
            return int(slot)
        length = 1
        while length <= order and tokens[seen - length] == tokens[end - length]:
            length += 1
        if length > order:
            return int(slot)
        slot = (slot + 1) & mask


@compiled
def _index(tokens: Int32s, tables: Int32s, min_order: int, begin: int, stop: int) -> None:
    """Enters the n-grams that end before positions begin to stop - 1; later occurrences replace earlier ones."""
    max_order = min_order + tables.shape[0] - 1
    for end in range(begin, stop):
        key = 0
        for order in range(1, min(max_order, end) + 1):
            key = mix(key, tokens[end - order])
            if order >= min_order:
                row = order - min_order
                tables[row, _find_slot(tokens, tables, row, order, end, key)] = end


@compiled
def _copy_continuation(
    tokens: Int32s, num_tokens: int, tables: Int32s, min_order: int, vocab_size: int, draft: Int32s
) -> tuple[int, int]:
    """Fills `draft` with the continuation of the longest repeated suffix; returns the lengths of draft and suffix."""
    follower, matched, key = 0, 0, 0
    for order in range(1, min(min_order + tables.shape[0] - 1, num_tokens) + 1):
        key = mix(key, tokens[num_tokens - order])
        if order >= min_order:
            row = order - min_order
            seen = tables[row, _find_slot(tokens, tables, row, order, num_tokens, key)]
            # Without an occurrence of a suffix there is none of a longer one.
            if seen == 0:
                break
            follower, matched = seen, order
    if follower == 0:
        return 0, 0
    for index in range(draft.shape[0]):
        source = follower + index
        token = tokens[source] if source < num_tokens else draft[source - num_tokens]
        if token < 0 or token >= vocab_size:
            return index, matched
        draft[index] = token
    return int(draft.shape[0]), matched


class LookupIndex:
    """Copies the continuation of the latest earlier occurrence of the longest repeated suffix.

    One open-addressing table per order maps the hash of an n-gram to the position after its latest occurrence. The
    text at an entry is compared with the n-gram, so colliding hashes cost time only. The n-gram at the end of the text
    is entered with the next token, so every entry is an earlier occurrence.

    Memory: at most 11 bytes per token and order, plus 8 per token (tables of int32 between 3/8 and 3/4 full after the
    first 64 tokens).

    Attributes:
        num_tokens: number of tokens of the text.
        match_length: length of the suffix that the latest draft was found by, in tokens; 0 without a draft.
    """

    def __init__(self, min_order: int, max_order: int, vocab_size: int) -> None:
        self._min_order, self._num_orders, self._vocab_size = min_order, max_order - min_order + 1, vocab_size
        self._tokens: Int32s = np.empty(0, np.int32)
        self._tables: Int32s = np.empty((self._num_orders, 0), np.int32)
        self.num_tokens = self.match_length = 0

    @property
    def text(self) -> Int32s:
        """[num_tokens], the text; read-only."""
        return self._tokens[: self.num_tokens]

    @property
    def last_token(self) -> int:
        """The last token of the text, which must not be empty."""
        return int(self._tokens[self.num_tokens - 1])

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self._tokens.nbytes + self._tables.nbytes

    def extend(self, new_tokens: Int32s) -> None:
        """Appends tokens to the text: [num_new_tokens]."""
        begin, stop = self.num_tokens, self.num_tokens + len(new_tokens)
        if stop > len(self._tokens):
            num_slots = 1 << max(6, (stop + stop // 2 - 1).bit_length())
            grown = np.empty(num_slots * 3 // 4, np.int32)
            grown[:begin] = self._tokens[:begin]
            self._tokens = grown
            self._tables = np.zeros((self._num_orders, num_slots), np.int32)
            begin = 0
        self._tokens[self.num_tokens : stop] = new_tokens
        _index(self._tokens, self._tables, self._min_order, begin, stop)
        self.num_tokens = stop

    def draft(self, num_draft_tokens: int) -> list[int]:
        """Returns copied tokens, at most `num_draft_tokens`, up to the first one outside the vocabulary."""
        draft = np.empty(num_draft_tokens, np.int32)
        length, matched = _copy_continuation(
            self._tokens, self.num_tokens, self._tables, self._min_order, self._vocab_size, draft
        )
        self.match_length = matched if length else 0
        copied: list[int] = draft[:length].tolist()
        return copied
