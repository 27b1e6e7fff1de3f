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
        # Per request its parts, as position of the first state, and states; each begins where the one before ends.
        self._parts: dict[str, list[tuple[int, torch.Tensor]]] = {}

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
        for (request_id, first, _), piece in zip(spans, pieces, strict=True):
            self._cut(request_id, first)
            self._parts.setdefault(request_id, []).append((first, piece))
            self.num_tokens += len(piece)
        while self.num_tokens > 2 * self._step_tokens:
            self._drop_oldest(max(self._parts, key=self._count))

    def is_full(self, enough: int) -> bool:
        """Whether there are `enough` positions, or too many for another step to find room."""
        return self.num_tokens >= min(enough, self._step_tokens)

    def span(self, request_id: str) -> tuple[int, int]:
        """Returns the position of the first state of a request, and that after the last one; (0, 0) without any."""
        parts = self._parts.get(request_id)
        return (parts[0][0], parts[-1][0] + len(parts[-1][1])) if parts else (0, 0)

    def take(self, request_id: str, start: int, stop: int) -> list[torch.Tensor]:
        """Returns the states of the positions from `start` to before `stop` in parts; all must be there."""
        found = []
        for first, states in self._parts[request_id]:
            if first < stop and first + len(states) > start:
                found.append(states[max(start - first, 0) : stop - first])
        return found

    def drop_before(self, request_id: str, position: int) -> None:
        """Drops parts whose positions are all before `position`."""
        parts = self._parts.get(request_id)
        while parts and parts[0][0] + len(parts[0][1]) <= position:
            self.num_tokens -= len(parts.pop(0)[1])

    def forget(self, request_id: str) -> None:
        """Drops all states of a request."""
        self.num_tokens -= self._count(request_id)
        self._parts.pop(request_id, None)

    def _count(self, request_id: str) -> int:
        return sum(len(states) for _, states in self._parts.get(request_id, ()))

    def _cut(self, request_id: str, position: int) -> None:
        """Drops states from a position on; all of them if there is a gap before it."""
        parts = self._parts.get(request_id)
        if not parts:
            return
        if self.span(request_id)[1] < position:
            self.forget(request_id)
            return
        while parts and parts[-1][0] >= position:
            self.num_tokens -= len(parts.pop()[1])
        if parts:
            first, states = parts[-1]
            if first + len(states) > position:
                self.num_tokens -= first + len(states) - position
                parts[-1] = first, states[: position - first]

    def _drop_oldest(self, request_id: str) -> None:
        parts = self._parts[request_id]
        self.num_tokens -= len(parts.pop(0)[1])
        if not parts:
            del self._parts[request_id]
