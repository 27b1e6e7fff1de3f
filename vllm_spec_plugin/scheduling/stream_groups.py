"""Tokens that leave in groups of one size, whatever the steps gave."""

from collections.abc import Sequence
from typing import Generic, TypeVar

Token = TypeVar("Token")


class StreamGroups(Generic[Token]):
    """Holds each request's tokens back until they make a group.

    A token is whatever travels as one: its id, and with it its logprobs.

    Attributes:
        size: tokens of a group.
    """

    def __init__(self, size: int) -> None:
        """Holds nothing back yet.

        Args:
            size: at least 1. Where no step gives more, no more than one group is released at a time.
        """
        self.size = size
        self._held: dict[str, list[Token]] = {}

    def release(self, request_id: str, tokens: Sequence[Token], *, is_last: bool) -> list[Token]:
        """Takes a request's tokens of a step.

        Args:
            request_id: whose.
            tokens: in order; maybe none.
            is_last: whether the request ends with them.

        Returns:
            What is to leave now, in order: whole groups, maybe none; all there is if it is the last of the request.
        """
        waiting = [*self._held.pop(request_id, ()), *tokens]
        count = len(waiting) if is_last else len(waiting) // self.size * self.size
        if count < len(waiting):
            self._held[request_id] = waiting[count:]
        return waiting[:count]

    def drop(self, request_id: str) -> None:
        """Forgets what is held back of a request that nobody waits for any more."""
        self._held.pop(request_id, None)
