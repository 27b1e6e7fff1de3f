"""Keeps finished requests' texts, for drafts of later requests of the same scope."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.ngram import pieces
from vllm_spec_plugin.proposers.ngram.pieces import PIECE, WAYS

Int32s = npt.NDArray[np.int32]


@dataclass
class _Scope:
    """A scope with texts.

    Attributes:
        name: name of the scope.
        number: its number in compiled code, never used twice.
        num_pieces: number of its pieces.
    """

    name: str
    number: int
    num_pieces: int = 0


class SharedTexts:
    """Copies the continuation of the latest occurrence of the longest suffix in the texts of a scope.

    **Exactness.** A draft is a function of the request's text and of finished texts, independent of the step's noise:
    a point mass, verified as such. A finished seeded request may have had the noise of a present one with the same
    seed. So seeded requests sample their token first, and accept an equal draft token (`verify_chain`); then nothing
    depends on the store.

    **Scopes.** Every entry is compared with scope and tokens; hashes decide nothing. Text of one scope never reaches
    drafts of another. Only how long it is kept may depend on others.

    **Eviction.** Texts are cut into pieces of 64 tokens; each n-gram has one entry, its latest occurrence in the scope.
    A piece without entries is dropped, as all of it occurred again later: a common prompt is kept once. A full store
    drops the piece that was least recently added or used, of any scope; a scope without pieces is dropped. All of this
    depends on the order of calls only, so that ranks with the same calls have the same texts.

    **Memory.** Reserved at the start: per token of `max_tokens` 4 bytes, and 8 to 16 per order. Pages that were never
    written take none. Python's bookkeeping adds about 4 bytes per token, and some hundred per scope, of which there are
    at most as many as pieces.

    Attributes:
        num_tokens: number of kept tokens, all scopes together.
    """

    def __init__(self, min_order: int, max_order: int, max_tokens: int, vocab_size: int) -> None:
        """Creates an empty store.

        Args:
            min_order: minimum match length, in tokens, at least 1.
            max_order: maximum match length, in tokens.
            max_tokens: maximum kept tokens, all scopes together, at least 64.
            vocab_size: size of the vocabulary; only tokens below are drafted, others may occur in texts.

        Raises:
            ValueError: an argument is out of range.
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
        # At most half of all ways are used when all pieces are.
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
        # Scope of each piece in use, the least recently used piece first.
        self._in_use: OrderedDict[int, _Scope] = OrderedDict()
        self._given_back: list[int] = []
        self._num_pieces_ever = 0
        self.num_tokens = 0

    def _compile(self) -> None:
        """Compiles all functions, so that no request waits for the compiler."""
        text = np.zeros(self._min_order + 1, np.int32)
        self.add("", text)
        self.draft("", text, 1)
        self.clear()

    @property
    def num_bytes(self) -> int:
        """Reserved memory, in bytes, without Python's bookkeeping."""
        return self._pieces.nbytes + self._books.nbytes + self._ways.nbytes + self._unused.nbytes

    def add(self, scope: str, token_ids: Int32s) -> None:
        """Adds a finished text.

        Args:
            scope: scope of the request.
            token_ids: [num_tokens] int32, prompt and output; a text that is too long is cut at the beginning.
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
        """Copies the continuation of the latest occurrence of the longest suffix of a text.

        Args:
            scope: scope of the request.
            token_ids: [num_tokens] int32, text of the request.
            num_draft_tokens: maximum tokens to copy.
            longer_than: match length to exceed, in tokens.

        Returns:
            The copied tokens, up to the first one outside the vocabulary; empty without a match.
        """
        owner, min_length = self._scopes.get(scope), max(longer_than + 1, self._min_order)
        if owner is None or min_length > self._max_order:
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
            min_length,
            tokens,
            begin,
            used,
        )
        for piece in used[:num_used].tolist():
            self._in_use.move_to_end(piece)
        copied: list[int] = tokens[begin : begin + length].tolist()
        return copied

    def _add_piece(self, owner: _Scope, token_ids: Int32s, begin: int) -> None:
        owner.num_pieces += 1  # first, so that an eviction does not drop the scope
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
