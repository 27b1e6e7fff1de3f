"""Texts of requests that have ended, to draft from for those that come later in the same scope."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.ngram import pieces
from vllm_spec_plugin.proposers.ngram.pieces import PIECE, WAYS

Int32s = npt.NDArray[np.int32]


@dataclass
class _Scope:
    """Whose texts lie together.

    Attributes:
        number: stands for the name in compiled code; none is ever used twice.
    """

    name: str
    number: int
    num_pieces: int = 0


class SharedTexts:
    """Copies what followed the latest occurrence of the longest suffix in the texts of a scope.

    **Exact.** A draft is a function of the request's text and of texts that had ended before, none of which looks
    at the step's noise: it is certain (a point mass), and verified as such. A seeded request that ended may have
    had the noise that one with the same seed has now; that is why seeded requests with certain drafts draw their
    token first and keep the draft if it is equal (`verify_chain`), and then nothing depends on the store.

    **Scopes.** Every entry is compared with the scope and the tokens it is found by; hashes decide nothing. What
    one scope says never reaches another's drafts. How long it is kept can depend on how much the others say.

    **What is kept.** Texts are cut in pieces of 64 tokens; each n-gram leads to its latest occurrence in its
    scope. A piece goes when nothing leads to it any more, because all of it was said again later: a prompt that
    many requests begin with is kept once. Where room is needed, the piece goes that was least recently added or
    drafted from, whatever its scope. A scope without pieces is dropped. Everything follows from the order of the
    calls, without clocks or chance: ranks that are told the same hold the same.

    **Memory.** Bounded, and reserved at the start: per token of `max_tokens` 4 bytes and for each order 8 to 16.
    Pages that were never written to take none. Python's own books add about 4 bytes per token, and some hundred
    per scope, of which there are at most as many as pieces.

    Attributes:
        num_tokens: how many tokens are kept, over all scopes.
    """

    def __init__(self, min_order: int, max_order: int, max_tokens: int, vocab_size: int) -> None:
        """An empty store.

        Args:
            min_order: fewest tokens that must match, at least 1.
            max_order: most tokens that are matched.
            max_tokens: most tokens kept over all scopes, at least 64.
            vocab_size: only tokens below it are drafted; others may occur in texts.
        """
        if min_order < 1:
            raise ValueError(f"min_order must be at least 1, got {min_order}")
        if max_order < min_order:
            raise ValueError(f"max_order must be at least min_order, {min_order}, got {max_order}")
        if max_tokens < PIECE:
            raise ValueError(f"max_tokens must be at least {PIECE}, got {max_tokens}")
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
        self._min_order, self._max_order, self._vocab_size = min_order, max_order, vocab_size
        self._num_pieces = max_tokens // PIECE
        num_orders = max_order - min_order + 1
        # A set has twice the room that it needs on average where all pieces are in use, or more.
        num_sets = 1 << (2 * PIECE * self._num_pieces // WAYS - 1).bit_length()
        self._unused: Int32s = np.zeros(num_orders * PIECE, np.int32)
        self._ways_shape = (num_orders, num_sets, WAYS)
        self.clear()
        self._compile()

    def clear(self) -> None:
        """Drops all texts."""
        self._pieces: Int32s = np.zeros((self._num_pieces, self._max_order + PIECE), np.int32)
        self._books = np.zeros((self._num_pieces, pieces.NUM_COLUMNS), np.int64)
        self._ways: Int32s = np.zeros(self._ways_shape, np.int32)
        self._scopes: dict[str, _Scope] = {}
        self._num_scopes_ever = 0
        # The scope of each piece in use, the least recently used piece first.
        self._in_use: OrderedDict[int, _Scope] = OrderedDict()
        self._given_back: list[int] = []
        self._num_pieces_ever = 0
        self.num_tokens = 0

    def _compile(self) -> None:
        """Runs every compiled function once, so that no request waits for the compiler."""
        text = np.zeros(self._min_order + 1, np.int32)
        self.add("", text)
        self.draft("", text, 1)
        self.clear()

    @property
    def num_bytes(self) -> int:
        """Memory reserved, in bytes, without Python's own books."""
        return self._pieces.nbytes + self._books.nbytes + self._ways.nbytes + self._unused.nbytes

    def add(self, scope: str, token_ids: Int32s) -> None:
        """Takes in a text that has ended.

        Args:
            scope: whose it is.
            token_ids: [num_tokens] int32, prompt and output. Of one that is too long the end is kept.
        """
        token_ids = token_ids[-PIECE * self._num_pieces :]
        if len(token_ids) <= self._min_order:
            return
        owner = self._scopes.get(scope)
        if owner is None:
            self._num_scopes_ever += 1
            owner = self._scopes[scope] = _Scope(scope, self._num_scopes_ever)
        for begin in range(0, len(token_ids), PIECE):
            self._add_piece(owner, token_ids, begin)

    def draft(self, scope: str, token_ids: Int32s, num_draft_tokens: int, longer_than: int = 0) -> list[int]:
        """What followed the latest occurrence of the longest suffix of a text.

        Args:
            scope: whose texts are looked in.
            token_ids: [num_tokens] int32, the text to go on with.
            num_draft_tokens: most tokens to copy.
            longer_than: shorter or equally long suffixes are not looked for.

        Returns:
            The copied tokens, up to the first that is not in the vocabulary; empty where there is no match.
        """
        owner, least = self._scopes.get(scope), max(longer_than + 1, self._min_order)
        if owner is None or least > self._max_order:
            return []
        context = token_ids[-self._max_order :]
        begin = len(context)
        tokens, used = np.empty(begin + num_draft_tokens, np.int32), np.empty(num_draft_tokens, np.int32)
        tokens[:begin] = context
        length, num_used = pieces.copy_continuation(
            self._pieces,
            self._books,
            self._ways,
            self._min_order,
            self._vocab_size,
            owner.number,
            least,
            tokens,
            begin,
            used,
        )
        for piece in used[:num_used].tolist():
            self._in_use.move_to_end(piece)
        copied: list[int] = tokens[begin : begin + length].tolist()
        return copied

    def _add_piece(self, owner: _Scope, token_ids: Int32s, begin: int) -> None:
        owner.num_pieces += 1  # first, so that making room does not drop the scope
        if not self._given_back and self._num_pieces_ever == self._num_pieces:
            self._drop(next(iter(self._in_use)))
        if self._given_back:
            piece = self._given_back.pop()
        else:
            piece, self._num_pieces_ever = self._num_pieces_ever, self._num_pieces_ever + 1
        context, length = min(begin, self._max_order), min(PIECE, len(token_ids) - begin)
        row = self._pieces[piece, self._max_order - context : self._max_order + length]
        row[:] = token_ids[begin - context : begin + length]
        self._books[piece] = owner.number, context, length, 0
        self._in_use[piece] = owner
        self.num_tokens += length
        num_unused = pieces.enter(self._pieces, self._books, self._ways, self._min_order, piece, self._unused)
        for unused in self._unused[:num_unused].tolist():
            self._drop(unused)

    def _drop(self, piece: int) -> None:
        owner = self._in_use.pop(piece)
        if self._books[piece, pieces.LIVE]:
            pieces.leave(self._pieces, self._books, self._ways, self._min_order, piece)
        self.num_tokens -= int(self._books[piece, pieces.LENGTH])
        self._given_back.append(piece)
        owner.num_pieces -= 1
        if not owner.num_pieces:
            del self._scopes[owner.name]
