"""Policies that look at neither cost nor batch."""

from collections.abc import Sequence

from vllm_spec_plugin.scheduling.draft_length.control import Batch, Forecast, Measured, Wish
from vllm_spec_plugin.scheduling.draft_length.heuristic import HeuristicDraftLength


class FixedControl:
    """As many as a request may have."""

    forecast: Forecast | None = None

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[int]:
        """Every limit."""
        return [wish.limit for wish in wishes]

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Nothing to learn."""

    def advance(self, request_id: str, num_tokens: int) -> None:
        """Nothing to learn."""

    def measured(self, step: Measured) -> None:
        """Nothing to learn."""

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing to forget."""


class HeuristicControl(FixedControl):
    """Longer drafts after full acceptance, shorter ones after early rejection."""

    def __init__(self, most: int) -> None:
        """Takes the longest draft length."""
        self._heuristic = HeuristicDraftLength(most)

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[int]:
        """What each request has grown or shrunk to."""
        return [min(wish.limit, self._heuristic.length(wish.request_id)) for wish in wishes]

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """Grows or shrinks."""
        self._heuristic.verified(request_id, asked, drafted, accepted)

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._heuristic.forget(request_id)
