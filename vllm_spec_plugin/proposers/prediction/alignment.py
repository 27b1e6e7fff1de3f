"""Follows a predicted output along the real one."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

# Tokens that must match for a lost place to be found again, most that are compared to choose among several such
# places, and most places that are looked at.
_ORDER, _LONGEST, _MOST_PLACES = 3, 32, 64
# Lost tokens after which one search is skipped between two, then two, and so on: a useless prediction costs little.
_PATIENCE = 32
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


class Alignment:
    """The place in a prediction where the output is.

    While output tokens are the predicted ones, the place moves with them. At the first other token the predicted one
    is taken as replaced, unless the token is the one after it: then one was left out. If the next token does not fit
    either, but is the one that seemed replaced, the other was inserted. Otherwise the place is lost until the last
    three tokens occur in the prediction: of several places the one with the longest match, then the next one ahead.

    Attributes:
        num_tokens: output tokens so far.
        num_accepted: those of them that were predicted: the token at the place before each.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        """Starts at the beginning of both.

        Args:
            prediction: predicted tokens.
        """
        self._prediction = list(prediction)
        self._place: int | None = 0
        # Where the first token was that did not fit, while it is not known whether it was replaced.
        self._doubt: int | None = None
        self._last_place, self._num_lost = 0, 0
        self._recent: deque[int] = deque(maxlen=_LONGEST)
        self._index: _Trigrams | None = None
        self.num_tokens = self.num_accepted = 0

    def continuation(self, count: int) -> list[int]:
        """The next predicted tokens, at most `count`; empty where the place is lost."""
        return [] if self._place is None else self._prediction[self._place : self._place + count]

    def advance(self, tokens: Iterable[int]) -> None:
        """Follows output tokens."""
        for token in tokens:
            self.num_tokens += 1
            self._recent.append(token)
            self._follow(token)

    def _follow(self, token: int) -> None:
        place, doubt = self._place, self._doubt
        if place is None:
            self._search()
        elif self._is_at(place, token):
            self.num_accepted += 1
            self._place, self._doubt, self._num_lost = place + 1, None, 0
        elif doubt is None:
            self._doubt = place
            self._place = place + 2 if self._is_at(place + 1, token) else place + 1
        elif self._is_at(doubt, token):
            self._place, self._doubt = doubt + 1, None
        else:
            self._last_place, self._place, self._doubt = doubt, None, None
            self._search()

    def _is_at(self, place: int, token: int) -> bool:
        return place < len(self._prediction) and self._prediction[place] == token

    def _search(self) -> None:
        """Looks for the last tokens in the prediction."""
        self._num_lost += 1
        if len(self._recent) < _ORDER or self._num_lost % (1 + self._num_lost // _PATIENCE):
            return
        if self._index is None:
            self._index = _Trigrams(self._prediction)
        recent = list(self._recent)
        places = self._index.places_after(recent[-_ORDER:])
        if places:
            last = self._last_place
            self._place = max(
                places, key=lambda place: (self._matched(place, recent), place > last, -abs(place - last))
            )

    def _matched(self, place: int, recent: list[int]) -> int:
        """Tokens before `place` that equal the last ones of the output; 0 if the index was wrong."""
        matched = 0
        for token, predicted in zip(reversed(recent), reversed(self._prediction[:place][-_LONGEST:]), strict=False):
            if token != predicted:
                break
            matched += 1
        return matched


class _Trigrams:
    """Where each three tokens occur, by a hash of them."""

    def __init__(self, tokens: Sequence[int]) -> None:
        keys = _keys(np.array(tokens, np.uint64))
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def places_after(self, trigram: list[int]) -> list[int]:
        """Places that follow it, at most `_MOST_PLACES`."""
        key = _keys(np.array(trigram, np.uint64))[0]
        first, last = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        found: list[int] = (self._order[first : min(last, first + _MOST_PLACES)] + _ORDER).tolist()
        return found


def _keys(tokens: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """[n - 2]: a number for each three tokens in a row."""
    if len(tokens) < _ORDER:
        return np.zeros(0, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(tokens + np.uint64(1), _ORDER)
    return np.asarray((windows * _FACTORS).sum(axis=1, dtype=np.uint64))
