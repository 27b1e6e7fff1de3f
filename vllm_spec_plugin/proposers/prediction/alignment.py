"""Aligns a predicted output with the real one."""

from collections.abc import Iterable, Sequence

import numpy as np

# Minimum match length of a search, in tokens, and its increment beyond _NEAR tokens, where short matches are mostly
# chance. Maximum of the former, and maximum candidates of a search.
_ORDER, _FAR_ORDER, _MAX_ORDER, _MAX_CANDIDATES = 2, 2, 6, 64
_MAX_MATCH = _MAX_ORDER + _FAR_ORDER
# A search covers _NEAR tokens on both sides, twice as many after each _WIDEN further tokens without a position.
_NEAR, _WIDEN = 64, 8
# After each _BACKOFF further tokens without a position, one more search between two is skipped, up to a maximum: a
# useless prediction costs little.
_BACKOFF, _MAX_SKIPPED = 32, 31
# A position that fails before _GOOD_RUN tokens matched was found by chance: the next search needs a longer match, and
# excludes it.
_GOOD_RUN = 8


class Alignment:
    """Tracks the position in a prediction that corresponds to the end of the output.

    While output tokens equal the predicted ones, the position advances. The first token that differs counts as a
    replacement of the predicted one; if it equals the one after, as a deletion. If the next token differs too, but
    equals the replaced one, the differing token counts as an insertion. Otherwise the position is lost until the last
    tokens occur in the prediction: the longest match counts, of equal ones the nearest ahead, else the nearest.

    The result depends on the two texts only, whether output tokens come one by one or at once.

    Attributes:
        num_tokens: number of output tokens so far.
        num_accepted: number of predicted tokens that the output had at their position, each counted once.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        """Starts at the beginning of both texts.

        Args:
            prediction: predicted tokens.
        """
        self._prediction = list(prediction)
        # 64 bits: a client's token ids may be as large as `SamplingParams` carries.
        self._array = np.array(self._prediction, np.int64)
        # Index of the next expected token; while lost, of the first one that differed. Tokens since it was lost.
        self._position = self._num_lost = 0
        # Index of the first token that differed, until the next token shows whether it was replaced.
        self._doubt: int | None = None
        # Whether the latest difference was a replacement or deletion: the next one is then assumed to be, too.
        self._replaces = False
        # Tokens matched since the last search, minimum match length of the next one, and the position that failed.
        self._run, self._order, self._failed = _GOOD_RUN, _ORDER, -1
        self._recent: list[int] = []
        self.num_tokens = self.num_accepted = 0
        # [len(prediction)], 1 for tokens that were counted: an output that repeats itself passes them again.
        self._is_counted = bytearray(len(self._prediction))

    def continuation(self, count: int) -> list[int]:
        """Returns the next predicted tokens, at most `count`; empty if the position is lost or uncertain."""
        if self._num_lost or (self._doubt is not None and not self._replaces):
            return []
        return self._prediction[self._position : self._position + count]

    def advance(self, tokens: Iterable[int]) -> None:
        """Follows output tokens."""
        for token in tokens:
            self.num_tokens += 1
            self._recent.append(token)
            del self._recent[:-_MAX_MATCH]
            self._follow(token)

    def _follow(self, token: int) -> None:
        position, doubt = self._position, self._doubt
        if self._num_lost:
            self._search()
        elif self._is_at(position, token):
            self.num_accepted += not self._is_counted[position]
            self._is_counted[position] = 1
            self._replaces, self._doubt = self._replaces or doubt is not None, None
            self._agree(position + 1)
        elif doubt is None:
            self._doubt = position
            self._position = position + 2 if self._is_at(position + 1, token) else position + 1
        elif self._is_at(doubt, token):
            self._replaces, self._doubt = False, None
            self._agree(doubt + 1)
        else:
            self._replaces, self._doubt, self._position = False, None, doubt
            if self._run < _GOOD_RUN:
                self._order, self._failed = min(self._order + 1, _MAX_ORDER), doubt
            self._search()

    def _is_at(self, position: int, token: int) -> bool:
        return position < len(self._prediction) and self._prediction[position] == token

    def _agree(self, position: int) -> None:
        self._position = position
        self._run += 1
        if self._run == _GOOD_RUN:
            self._order, self._failed = _ORDER, -1

    def _search(self) -> None:
        """Searches the prediction for the last output tokens."""
        self._num_lost += 1
        if len(self._recent) < self._order or self._num_lost % (1 + min(self._num_lost // _BACKOFF, _MAX_SKIPPED)):
            return
        found: list[tuple[int, bool, int, int]] = []
        for position in self._candidates():
            matched, distance = self._matched(position), abs(position - self._position)
            needed = self._order + (_FAR_ORDER if distance > _NEAR else 0)
            if matched >= needed and not self._failed - _GOOD_RUN <= position <= self._failed:
                found.append((matched, position >= self._position, -distance, position))
        if found:
            self._position, self._num_lost, self._run = max(found)[-1], 0, 0

    def _candidates(self) -> list[int]:
        """Returns the nearest `_MAX_CANDIDATES` positions in the window that follow the last `_order` tokens."""
        window = _NEAR << min(self._num_lost // _WIDEN, 24)
        low = max(self._position - window, self._order)
        positions = np.flatnonzero(self._array[low - 1 : self._position + window] == self._recent[-1]) + low
        for back in range(2, self._order + 1):
            positions = positions[self._array[positions - back] == self._recent[-back]]
        first = max(int(np.searchsorted(positions, self._position)) - _MAX_CANDIDATES // 2, 0)
        nearest: list[int] = positions[first : first + _MAX_CANDIDATES].tolist()
        return nearest

    def _matched(self, position: int) -> int:
        """Returns the number of tokens before `position` that equal the last output tokens."""
        before = self._prediction[max(position - _MAX_MATCH, 0) : position]
        matched = 0
        for token, predicted in zip(reversed(self._recent), reversed(before), strict=False):
            if token != predicted:
                break
            matched += 1
        return matched
