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
        sources: list[int] = []
        rows: list[int] = []
        start = 0
        for request_id, first, num_tokens in spans:
            if request_id not in self._lost and (added := self._rows_for(request_id, first, num_tokens)):
                sources.extend(range(start, start + len(added)))
                rows.extend(added)
            start += num_tokens
        try:
            if len(sources) < start:
                states = states[self._index(sources)]
            self._states[self._index(rows)] = states
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
        return self._states[self._index(rows)]

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
        """Drops all that is known of a request that has ended, or will be computed anew."""
        self._drop(request_id)
        self._lost.discard(request_id)

    def _drop(self, request_id: str) -> None:
        if (kept := self._kept.pop(request_id, None)) is not None:
            self._free += kept.rows

    def _rows_for(self, request_id: str, first: int, num_tokens: int) -> list[int]:
        """Returns the rows of a request's new states, those within the head's context; none if the request is lost."""
        num_tokens = min(num_tokens, self._max_len - first)
        if num_tokens <= 0:
            return []
        kept = self._kept.get(request_id)
        if kept is not None:
            same = first - kept.first
            if same > len(kept.rows):
                self.lose(request_id)
                return []
            if same < len(kept.rows):
                self._free += kept.rows[max(same, 0) :]
                del kept.rows[max(same, 0) :]
        while len(self._free) < num_tokens:
            if not self._kept:
                return []
            self.lose(max(self._kept, key=lambda other: len(self._kept[other].rows)))
        if request_id in self._lost:
            return []
        rows = self._free[-num_tokens:]
        del self._free[-num_tokens:]
        if kept is None or not kept.rows:
            self._kept[request_id] = _Kept(first, rows.copy())
        else:
            kept.rows += rows
        return rows

    def _index(self, rows: Sequence[int]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=self._states.device)
