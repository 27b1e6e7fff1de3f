"""How the drafts of each request fare. Imports no vLLM."""

from dataclasses import dataclass


@dataclass
class _Tally:
    steps: int = 0
    drafted: int = 0
    accepted: int = 0


class AcceptanceLog:
    """Adds up verified and accepted drafts per request until it ends."""

    def __init__(self) -> None:
        """Nobody has drafted yet."""
        self._tallies: dict[str, _Tally] = {}

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """Adds a step.

        Args:
            request_id: whose.
            drafted: draft tokens that were verified, at least 1.
            accepted: how many of them were kept.
        """
        tally = self._tallies.setdefault(request_id, _Tally())
        tally.steps += 1
        tally.drafted += drafted
        tally.accepted += accepted

    def ended(self, request_id: str) -> tuple[float, float] | None:
        """Forgets a request.

        Returns:
            Its acceptance rate (accepted / drafted) and acceptance length (1 + accepted / steps); None
            if no draft of it was ever verified.
        """
        tally = self._tallies.pop(request_id, None)
        if tally is None:
            return None
        return tally.accepted / tally.drafted, 1 + tally.accepted / tally.steps
