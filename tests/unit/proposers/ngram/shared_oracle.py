"""The texts of scopes as plainly as they can be kept, slow."""

from collections import OrderedDict

PIECE = 64
Place = tuple[int, int]


class Forgetful:
    """Pieces, their use and the n-grams that lead to them, in dicts."""

    def __init__(self, min_order: int, max_order: int, max_tokens: int) -> None:
        self.min_order, self.max_order, self.room = min_order, max_order, max_tokens // PIECE
        self.pieces: OrderedDict[int, tuple[str, list[int]]] = OrderedDict()
        self.places: dict[tuple[str, tuple[int, ...]], Place] = {}
        self.number = 0

    def add(self, scope: str, text: list[int]) -> None:
        text = text[-PIECE * self.room :]
        if len(text) <= self.min_order:
            return
        for begin in range(0, len(text), PIECE):
            while len(self.pieces) >= self.room:
                self._drop(next(iter(self.pieces)))
            self.number += 1
            self.pieces[self.number] = scope, text[begin : begin + PIECE]
            for end in range(begin, min(begin + PIECE, len(text))):
                for order in range(self.min_order, min(self.max_order, end) + 1):
                    self.places[scope, tuple(text[end - order : end])] = self.number, end - begin
            led_to = {number for number, _ in self.places.values()}
            for number in [number for number in self.pieces if number not in led_to and number != self.number]:
                self._drop(number)

    def _drop(self, number: int) -> None:
        del self.pieces[number]
        self.places = {ngram: place for ngram, place in self.places.items() if place[0] != number}

    def draft(self, scope: str, text: list[int], num_draft_tokens: int, longer_than: int = 0) -> list[int]:
        drafted: list[int] = []
        least, used = max(longer_than + 1, self.min_order), []
        while len(drafted) < num_draft_tokens:
            both = text + drafted
            places = [
                self.places.get((scope, tuple(both[-order:])))
                for order in range(min(self.max_order, len(both)), least - 1, -1)
            ]
            place = next((place for place in places if place), None)
            if place is None:
                break
            number, offset = place
            used.append(number)
            drafted += self.pieces[number][1][offset : offset + num_draft_tokens - len(drafted)]
            least = self.min_order
        for number in used:
            self.pieces.move_to_end(number)
        return drafted

    @property
    def num_tokens(self) -> int:
        return sum(len(tokens) for _, tokens in self.pieces.values())

    @property
    def num_scopes(self) -> int:
        return len({scope for scope, _ in self.pieces.values()})
