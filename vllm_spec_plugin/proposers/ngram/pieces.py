"""Where every n-gram of a scope was last seen, over pieces of texts of many scopes; compiled code only.

A piece is a row of `pieces`, [num_pieces, max_order + PIECE] int32: up to PIECE tokens of its own, and before
them, right-aligned, the tokens that stood before it in its text. So a piece can be read, and can go, by itself.

`ways`, [num_orders, num_sets, WAYS] int32, is a cache of sets: an n-gram's hash says which set it belongs to,
and the set holds the newest first. An entry is 1 + PIECE * piece + offset, the place of the token that followed; 0
ends the set. Where a set is full its oldest entry is lost. An entry counts only if the piece there is of the
same scope and its text equals the n-gram, so colliding hashes cost entries, never a wrong draft, and no choice of
tokens makes a look-up slow.
"""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.proposers.ngram.lookup import mix

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

PIECE = 64
WAYS = 16
# Columns of `books`, [num_pieces, NUM_COLUMNS] int64: the scope's number, how many tokens of context and of its own
# the piece has, and how many entries lead to it.
OWNER, CONTEXT, LENGTH, LIVE, NUM_COLUMNS = range(5)


@compiled
def _leads_to(pieces: Int32s, books: Int64s, entry: int, owner: int, tokens: Int32s, end: int, order: int) -> bool:
    """Whether `entry` is of that scope and stands behind the n-gram tokens[end - order : end]."""
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
    """Enters the n-grams that are followed by a token of the piece's own, over earlier entries of the same.

    Returns:
        How many pieces are no longer led to by any entry; they are written to `unused`, which has room for one
        per entry.
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
    """Removes every entry that leads to the piece."""
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
    pieces: Int32s, books: Int64s, ways: Int32s, min_order: int, owner: int, least: int, tokens: Int32s, end: int
) -> int:
    """The entry of the longest end of tokens[:end] that has one and at least `least` tokens; 0 if there is none."""
    most = min(pieces.shape[1] - PIECE, end)
    keys = np.empty(most + 1, np.int64)
    keys[0] = mix(0, owner)
    for order in range(1, most + 1):
        keys[order] = mix(keys[order - 1], tokens[end - order])
    # From long to short: a longer one may be there where a shorter one was lost.
    for order in range(most, least - 1, -1):
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
    least: int,
    tokens: Int32s,
    begin: int,
    used: Int32s,
) -> tuple[int, int]:
    """Fills tokens[begin:] with what followed the longest end of tokens[:begin] of at least `least` tokens.

    At the end of a piece it goes on where the end of the tokens so far occurred last, which as a rule is the
    next piece.

    Returns:
        How many tokens were filled in, up to the first that is not in the vocabulary, and how many pieces they
        are from, which are written to `used`: [len(tokens) - begin].
    """
    end, num_used = begin, 0
    while end < len(tokens):
        entry = _find(pieces, books, ways, min_order, owner, least, tokens, end)
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
        least = min_order
    return end - begin, num_used
