"""Indexes the latest occurrence of every n-gram of a scope, over pieces of texts of many scopes; compiled code only.

A piece is a row of `pieces`, [num_pieces, max_order + PIECE] int32: up to PIECE tokens of its own, and before them,
right-aligned, the tokens before it in its text. So each piece can be read and dropped by itself.

`ways`, [num_orders, num_sets, WAYS] int32, is a set-associative cache: an n-gram's hash selects the set, which holds
the newest entry first. An entry is 1 + PIECE * piece + offset, the position of the following token; 0 ends the set. A
full set drops its oldest entry. An entry counts only if its piece is of the same scope and has the same n-gram. So
colliding hashes cost entries, never a wrong draft, and no choice of tokens makes a look-up slow.
"""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.proposers.ngram.lookup import mix

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

PIECE = 64
WAYS = 16
# Columns of `books`, [num_pieces, NUM_COLUMNS] int64: number of the scope, tokens of context, tokens of its own, and
# number of entries of the piece.
OWNER, CONTEXT, LENGTH, LIVE, NUM_COLUMNS = range(5)


@compiled
def _leads_to(pieces: Int32s, books: Int64s, entry: int, owner: int, tokens: Int32s, end: int, order: int) -> bool:
    """Whether `entry` has scope `owner` and follows the n-gram tokens[end - order : end]."""
    piece = (entry - 1) // PIECE
    if books[piece, OWNER] != owner:
        return False
    column = pieces.shape[1] - PIECE + (entry - 1) % PIECE
    length = 1
    while length <= order and pieces[piece, column - length] == tokens[end - length]:
        length += 1
    return bool(length > order)


@compiled
def enter(pieces: Int32s, books: Int64s, ways: Int32s, min_order: int, piece: int, unused: Int32s) -> int:
    """Enters the n-grams before each of the piece's own tokens, in place of earlier entries of these n-grams.

    Returns:
        The number of pieces without any entry left, which are written to `unused`: [num_orders * PIECE].
    """
    max_order = pieces.shape[1] - PIECE
    mask, owner, tokens, num_unused = ways.shape[1] - 1, books[piece, OWNER], pieces[piece], 0
    for offset in range(books[piece, LENGTH]):
        end, key = max_order + offset, mix(0, owner)
        for order in range(1, min(max_order, books[piece, CONTEXT] + offset) + 1):
            key = mix(key, tokens[end - order])
            if order < min_order:
                continue
            entries = ways[order - min_order, key & mask]
            way = 0
            while (
                way < WAYS - 1
                and entries[way] != 0
                and not _leads_to(pieces, books, entries[way], owner, tokens, end, order)
            ):
                way += 1
            replaced = entries[way]
            for later in range(way, 0, -1):
                entries[later] = entries[later - 1]
            entries[0] = 1 + PIECE * piece + offset
            books[piece, LIVE] += 1
            if replaced != 0:
                other = (replaced - 1) // PIECE
                books[other, LIVE] -= 1
                if books[other, LIVE] == 0:
                    unused[num_unused] = other
                    num_unused += 1
    return num_unused


@compiled
def leave(pieces: Int32s, books: Int64s, ways: Int32s, min_order: int, piece: int) -> None:
    """Removes all entries of the piece."""
    max_order = pieces.shape[1] - PIECE
    mask, tokens = ways.shape[1] - 1, pieces[piece]
    for offset in range(books[piece, LENGTH]):
        end, key = max_order + offset, mix(0, books[piece, OWNER])
        for order in range(1, min(max_order, books[piece, CONTEXT] + offset) + 1):
            key = mix(key, tokens[end - order])
            if order < min_order:
                continue
            entries = ways[order - min_order, key & mask]
            kept = 0
            for way in range(WAYS):
                if entries[way] != 1 + PIECE * piece + offset:
                    entries[kept] = entries[way]
                    kept += 1
            for way in range(kept, WAYS):
                entries[way] = 0
    books[piece, LIVE] = 0


@compiled
def _find(
    pieces: Int32s, books: Int64s, ways: Int32s, min_order: int, owner: int, min_length: int, tokens: Int32s, end: int
) -> int:
    """Returns the entry of the longest suffix of tokens[:end] with at least `min_length` tokens; 0 without one."""
    longest = min(pieces.shape[1] - PIECE, end)
    keys = np.empty(longest + 1, np.int64)
    keys[0] = mix(0, owner)
    for order in range(1, longest + 1):
        keys[order] = mix(keys[order - 1], tokens[end - order])
    # Descending: an entry of a longer suffix may exist where that of a shorter one was dropped.
    for order in range(longest, min_length - 1, -1):
        entries = ways[order - min_order, keys[order] & (ways.shape[1] - 1)]
        for way in range(WAYS):
            if entries[way] == 0:
                break
            if _leads_to(pieces, books, entries[way], owner, tokens, end, order):
                return int(entries[way])
    return 0


@compiled
def copy_continuation(
    pieces: Int32s,
    books: Int64s,
    ways: Int32s,
    min_order: int,
    vocab_size: int,
    owner: int,
    min_length: int,
    tokens: Int32s,
    begin: int,
    used: Int32s,
) -> tuple[int, int]:
    """Fills tokens[begin:] with the continuation of the longest suffix of tokens[:begin], of at least `min_length`.

    At the end of a piece it continues at the latest occurrence of the last tokens, usually the next piece.

    Returns:
        The number of copied tokens, up to the first one outside the vocabulary; and the number of their pieces, which
        are written to `used`: [len(tokens) - begin].
    """
    end, num_used = begin, 0
    while end < len(tokens):
        entry = _find(pieces, books, ways, min_order, owner, min_length, tokens, end)
        if entry == 0:
            break
        piece, offset = (entry - 1) // PIECE, (entry - 1) % PIECE
        count = min(len(tokens) - end, books[piece, LENGTH] - offset)
        first = pieces.shape[1] - PIECE + offset
        for column in range(first, first + count):
            token = pieces[piece, column]
            if token < 0 or token >= vocab_size:
                return end - begin, num_used
            if column == first:
                used[num_used] = piece
                num_used += 1
            tokens[end] = token
            end += 1
        min_length = min_order
    return end - begin, num_used
