"""Acceptance of each request's drafts."""


class AcceptanceLog:
    """Adds up verified and accepted drafts per request until it ends."""

    def __init__(self) -> None:
        """Starts without requests."""
        # Steps, drafted tokens, accepted ones.
        self._tallies: dict[str, list[int]] = {}

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """Adds a step.

        Args:
            request_id: the request.
            drafted: number of verified draft tokens, at least 1.
            accepted: number of accepted draft tokens.
        """
        tally = self._tallies.get(request_id)
        if tally is None:
            tally = self._tallies[request_id] = [0, 0, 0]
        tally[0] += 1
        tally[1] += drafted
        tally[2] += accepted

    def ended(self, request_id: str) -> tuple[float, float] | None:
        """Drops a request.

        Returns:
            Its acceptance rate (accepted / drafted) and acceptance length (1 + accepted / steps); None if no draft of
            it was verified.
        """
        tally = self._tallies.pop(request_id, None)
        if tally is None:
            return None
        steps, drafted, accepted = tally
        return accepted / drafted, 1 + accepted / steps
