"""Follows a predicted output along the real one."""

from collections.abc import Iterable, Sequence

import numpy as np

# Tokens that must match to find a lost place again, and how many more farther than _NEAR tokens away, where a short
# match is mostly chance. Most tokens that must match, most that are compared, and most places.
_ORDER, _FAR_MORE, _MOST_ORDER, _MOST_PLACES = 2, 2, 6, 64
_LONGEST = _MOST_ORDER + _FAR_MORE
# A search covers _NEAR tokens to both sides, twice as many after each further _WIDEN lost tokens.
_NEAR, _WIDEN = 64, 8
# After each further _PATIENCE lost tokens one more search is skipped between two: a useless prediction costs little.
_PATIENCE, _MOST_SKIPPED = 32, 31
# A place that fails before _GOOD_RUN tokens agreed was found by chance: the next one needs a longer match, and must not
# lead to the same place again.
_GOOD_RUN = 8


class Alignment:
    """The place in a prediction where the output is.

    While output tokens are the predicted ones, the place moves with them. At the first other token the predicted one
    is taken as replaced, unless the token is the one after it: then one was left out. If the next token does not fit
    either, but is the one that seemed replaced, the other was inserted. Otherwise the place is lost until the last
    tokens occur in the prediction: of several places the one with the longest match, then the next one ahead.

    It is a function of the two texts alone: output tokens may come one by one or all at once.

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
        # 64 bits: tokens of a client may be any number up to the largest that `SamplingParams` carries.
        self._array = np.array(self._prediction, np.int64)
        # Where the next token is expected; while lost, where the first token was that did not fit.
        self._place = self._num_lost = 0
        # Where the first token was that did not fit, while it is not known whether it was replaced.
        self._doubt: int | None = None
        # Whether the last such token was replaced, or left out: then it is drafted as if the next one is, too.
        self._replaces = False
        # Tokens that agreed since the place was last found, tokens that must match to find it, and where it failed.
        self._run, self._order, self._failed = _GOOD_RUN, _ORDER, -1
        self._recent: list[int] = []
        self.num_tokens = self.num_accepted = 0

    def continuation(self, count: int) -> list[int]:
        """The next predicted tokens, at most `count`; empty where the place is lost or in doubt."""
        if self._num_lost or (self._doubt is not None and not self._replaces):
            return []
        return self._prediction[self._place : self._place + count]

    def advance(self, tokens: Iterable[int]) -> None:
        """Follows output tokens."""
        for token in tokens:
            self.num_tokens += 1
            self._recent.append(token)
            del self._recent[:-_LONGEST]
            self._follow(token)

    def _follow(self, token: int) -> None:
        place, doubt = self._place, self._doubt
        if self._num_lost:
            self._search()
        elif self._is_at(place, token):
            self.num_accepted += 1
            self._replaces, self._doubt = self._replaces or doubt is not None, None
            self._agree(place + 1)
        elif doubt is None:
            self._doubt = place
            self._place = place + 2 if self._is_at(place + 1, token) else place + 1
        elif self._is_at(doubt, token):
            self._replaces, self._doubt = False, None
            self._agree(doubt + 1)
        else:
            self._replaces, self._doubt, self._place = False, None, doubt
            if self._run < _GOOD_RUN:
                self._order, self._failed = min(self._order + 1, _MOST_ORDER), doubt
            self._search()

    def _is_at(self, place: int, token: int) -> bool:
        return place < len(self._prediction) and self._prediction[place] == token

    def _agree(self, place: int) -> None:
        self._place = place
        self._run += 1
        if self._run == _GOOD_RUN:
            self._order, self._failed = _ORDER, -1

    def _search(self) -> None:
        """Looks for the last tokens in the prediction."""
        self._num_lost += 1
        if len(self._recent) < self._order or self._num_lost % (1 + min(self._num_lost // _PATIENCE, _MOST_SKIPPED)):
            return
        found: list[tuple[int, bool, int, int]] = []
        for place in self._places():
            matched, distance = self._matched(place), abs(place - self._place)
            needed = self._order + (_FAR_MORE if distance > _NEAR else 0)
            if matched >= needed and not self._failed - _GOOD_RUN <= place <= self._failed:
                found.append((matched, place >= self._place, -distance, place))
        if found:
            self._place, self._num_lost, self._run = max(found)[-1], 0, 0

    def _places(self) -> list[int]:
        """Places in the searched window that follow the last `_order` tokens, the nearest `_MOST_PLACES`."""
        window = _NEAR << min(self._num_lost // _WIDEN, 24)
        low = max(self._place - window, self._order)
        places = np.flatnonzero(self._array[low - 1 : self._place + window] == self._recent[-1]) + low
        for back in range(2, self._order + 1):
            places = places[self._array[places - back] == self._recent[-back]]
        first = max(int(np.searchsorted(places, self._place)) - _MOST_PLACES // 2, 0)
        nearest: list[int] = places[first : first + _MOST_PLACES].tolist()
        return nearest

    def _matched(self, place: int) -> int:
        """Tokens before `place` that equal the last ones of the output."""
        before = self._prediction[max(place - _LONGEST, 0) : place]
        matched = 0
        for token, predicted in zip(reversed(self._recent), reversed(before), strict=False):
            if token != predicted:
                break
            matched += 1
        return matched
