"""Keeps the target's hidden states until a head has computed their positions."""

from collections.abc import Sequence

import torch

# Id of a request, position of its first token, and number of its tokens in a step.
Span = tuple[str, int, int]
# Minimum tokens of a request in a step for a copy of its own: those of a prompt.
_LONG = 64


class StateBuffer:
    """Keeps hidden states of consecutive positions per request, the latest ones.

    Positions that are computed again, after rejected drafts, replace what was kept of them.

    Attributes:
        num_tokens: number of positions of all requests.
    """

    def __init__(self, step_tokens: int) -> None:
        """Starts empty.

        Args:
            step_tokens: maximum positions of a step. Those of two steps are kept; beyond that the longest request loses
                its oldest ones.
        """
        self._step_tokens = step_tokens
        self.num_tokens = 0
        # Per request its parts, each begins where the one before ends: position of the first state, position after the
        # last one, and states. Their length is the difference: asking a tensor takes longer.
        self._parts: dict[str, list[tuple[int, int, torch.Tensor]]] = {}

    def add(self, states: torch.Tensor, spans: Sequence[Span]) -> None:
        """Keeps the states of a step.

        Args:
            states: [num_tokens, any].
            spans: in the order of `states` each request's id, the position of its first token, and its tokens.
        """
        # A part keeps its whole tensor alive: prompts get their own.
        counts = [count for _, _, count in spans]
        pieces = list(states.split(counts))
        if max(counts, default=0) >= _LONG:
            short = [i for i, count in enumerate(counts) if count < _LONG]
            if short:
                together = torch.cat([pieces[i] for i in short]).split([counts[i] for i in short])
                for i, piece in zip(short, together, strict=True):
                    pieces[i] = piece
            for i, count in enumerate(counts):
                if count >= _LONG:
                    pieces[i] = pieces[i].clone()
        for (request_id, first, count), piece in zip(spans, pieces, strict=True):
            parts = self._parts.get(request_id)
            if parts and parts[-1][1] != first:
                self._cut(request_id, first)
            self._parts.setdefault(request_id, []).append((first, first + count, piece))
        self.num_tokens += sum(counts)
        while self.num_tokens > 2 * self._step_tokens:
            self._drop_oldest(max(self._parts, key=lambda request_id: _length(self._parts[request_id])))

    def is_full(self, enough: int) -> bool:
        """Whether there are `enough` positions, or too many for another step to find room."""
        return self.num_tokens >= min(enough, self._step_tokens)

    def span(self, request_id: str) -> tuple[int, int]:
        """Returns the position of the first state of a request, and that after the last one; (0, 0) without any."""
        parts = self._parts.get(request_id)
        return (parts[0][0], parts[-1][1]) if parts else (0, 0)

    def take(self, request_id: str, start: int, stop: int) -> list[torch.Tensor]:
        """Returns the states of the positions from `start` to before `stop` in parts; all must be there."""
        found = []
        for first, last, states in self._parts[request_id]:
            if first < stop and last > start:
                is_whole = start <= first and last <= stop
                found.append(states if is_whole else states[max(start - first, 0) : stop - first])
        return found

    def drop_before(self, request_id: str, position: int) -> None:
        """Drops parts whose positions are all before `position`."""
        parts = self._parts.get(request_id, [])
        count = 0
        while count < len(parts) and parts[count][1] <= position:
            count += 1
        self.num_tokens -= _length(parts[:count])
        del parts[:count]

    def forget(self, request_id: str) -> None:
        """Drops all states of a request."""
        self.num_tokens -= _length(self._parts.pop(request_id, []))

    def _cut(self, request_id: str, position: int) -> None:
        """Drops states from a position on; all of them if there is a gap before it."""
        parts = self._parts[request_id]
        if parts[-1][1] < position:
            self.forget(request_id)
            return
        while parts and parts[-1][0] >= position:
            self.num_tokens -= _length([parts.pop()])
        if parts and parts[-1][1] > position:
            first, last, states = parts[-1]
            self.num_tokens -= last - position
            parts[-1] = first, position, states[: position - first]

    def _drop_oldest(self, request_id: str) -> None:
        parts = self._parts[request_id]
        self.num_tokens -= _length([parts.pop(0)])
        if not parts:
            del self._parts[request_id]


def _length(parts: Sequence[tuple[int, int, torch.Tensor]]) -> int:
    return sum([last - first for first, last, _ in parts])
