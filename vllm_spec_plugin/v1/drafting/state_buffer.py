"""Keeps the target's hidden states until a head has computed their positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Id of a request, position of its first token, and number of its tokens in a step.
Span = tuple[str, int, int]


@dataclass(slots=True)
class _Kept:
    """States of consecutive positions of a request.

    Attributes:
        first: position of the first state.
        rows: index of each state's row in the buffer.
    """

    first: int
    rows: list[int]


class StateBuffer:
    """Keeps hidden states of consecutive positions per request, in rows of one tensor that never grows.

    Positions that are computed again, after rejected drafts, replace what was kept of them. A request is *lost* once
    the states of a position are missing: the head cannot compute it from then on, and none of its states are kept.

    Attributes:
        num_lost: number of requests that were lost.
    """

    def __init__(self, states: torch.Tensor, max_len: int) -> None:
        """Starts empty.

        Args:
            states: [num_rows, size], the memory for states. If it is full, the request with the most states is lost.
            max_len: the head's context length; states of positions from there on are not kept.
        """
        self._states = states
        self._max_len = max_len
        self._free = list(range(len(states)))
        self._kept: dict[str, _Kept] = {}
        self._lost: set[str] = set()
        self.num_lost = 0

    def add(self, states: torch.Tensor, spans: Sequence[Span]) -> None:
        """Copies the states of a step.

        Args:
            states: [num_tokens, size].
            spans: in the order of `states` each request's id, the position of its first token, and its tokens.
        """
        new: list[Span] = []
        starts: list[int] = []
        start = 0
        for request_id, first, num_tokens in spans:
            if (num_kept := min(num_tokens, self._max_len - first)) > 0 and self._continues(request_id, first):
                new.append((request_id, first, num_kept))
                starts.append(start)
            start += num_tokens
        self._make_room(new)
        sources: list[int] = []
        rows: list[int] = []
        for (request_id, first, num_tokens), at in zip(new, starts, strict=True):
            if request_id not in self._lost:
                added = self._free[-num_tokens:]
                del self._free[-num_tokens:]
                self._kept.setdefault(request_id, _Kept(first, [])).rows += added
                rows += added
                sources += range(at, at + num_tokens)
        try:
            if len(sources) < start:
                states = states[self._index(sources)]
            self._states.index_copy_(0, self._index(rows), states)
        except Exception:
            for request_id, _, _ in spans:
                self.lose(request_id)
            raise

    def span(self, request_id: str) -> tuple[int, int]:
        """Returns the position of the first state of a request, and that after the last one; (0, 0) without any."""
        kept = self._kept.get(request_id)
        return (kept.first, kept.first + len(kept.rows)) if kept is not None else (0, 0)

    def take(self, spans: Sequence[Span]) -> torch.Tensor:
        """Returns [num_tokens, size], copies of the states of all spans in order.

        Raises:
            ValueError: some are not there.
        """
        rows: list[int] = []
        for request_id, first, num_tokens in spans:
            begin, end = self.span(request_id)
            if not begin <= first <= first + num_tokens <= end:
                raise ValueError(f"{request_id}: states {begin} to {end} are kept, {num_tokens} from {first} are not")
            rows += self._kept[request_id].rows[first - begin : first - begin + num_tokens]
        return self._states.index_select(0, self._index(rows))

    def drop_before(self, request_id: str, position: int) -> None:
        """Drops the states of positions before `position`."""
        kept = self._kept.get(request_id)
        if kept is not None and position > kept.first:
            self._free += kept.rows[: position - kept.first]
            del kept.rows[: position - kept.first]
            kept.first = position

    def lose(self, request_id: str) -> None:
        """Drops all states of a request, and keeps no later ones until it is forgotten."""
        self.num_lost += request_id not in self._lost
        self._drop(request_id)
        self._lost.add(request_id)

    def forget(self, request_id: str) -> None:
        """Drops all state of a request that has ended, or will be recomputed."""
        self._drop(request_id)
        self._lost.discard(request_id)

    def _drop(self, request_id: str) -> None:
        if (kept := self._kept.pop(request_id, None)) is not None:
            self._free += kept.rows

    def _continues(self, request_id: str, first: int) -> bool:
        """Whether states from a position on may follow those of a request, after dropping those that they replace."""
        kept = self._kept.get(request_id)
        if kept is None:
            return request_id not in self._lost
        if first > kept.first + len(kept.rows):
            self.lose(request_id)
            return False
        num_same = first - kept.first
        if num_same <= 0:
            self._drop(request_id)
        elif num_same < len(kept.rows):
            self._free += kept.rows[num_same:]
            del kept.rows[num_same:]
        return True

    def _make_room(self, new: Sequence[Span]) -> None:
        """Loses the longest requests until the others' new states find rows."""
        num_rows = {request_id: num_tokens for request_id, _, num_tokens in new}
        if sum(num_rows.values()) <= len(self._free):
            return
        lengths = {request_id: len(kept.rows) for request_id, kept in self._kept.items()}
        lengths |= {request_id: lengths.get(request_id, 0) + count for request_id, count in num_rows.items()}
        for request_id in sorted(lengths, key=lengths.__getitem__, reverse=True):
            if sum(num_rows.values()) <= len(self._free):
                return
            self.lose(request_id)
            num_rows.pop(request_id, None)

    def _index(self, rows: Sequence[int]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=self._states.device)
