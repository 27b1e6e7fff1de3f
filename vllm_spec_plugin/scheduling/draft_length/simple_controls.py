"""Policies that look at neither cost nor batch."""

from collections.abc import Sequence

from vllm_spec_plugin.scheduling.draft_length.control import Batch, Forecast, Measured, Wish
from vllm_spec_plugin.scheduling.draft_length.heuristic import HeuristicDraftLength
from vllm_spec_plugin.turns import Turns, length_of


class FixedControl:
    """All proposers in their order, each for as many tokens as a request may have."""

    is_constant = True
    forecast: Forecast | None = None

    def is_off(self, num_requests: int) -> bool:
        """Never."""
        return False

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[Turns]:
        """Every limit."""
        return [tuple((place, limit) for place, limit in enumerate(wish.limits) if limit > 0) for wish in wishes]

    def verified(
        self,
        request_id: str,
        turns: Turns,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Nothing to learn."""

    def measured(self, step: Measured) -> None:
        """Nothing to learn."""

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing to forget."""


class HeuristicControl(FixedControl):
    """All proposers in their order; longer drafts after full acceptance, shorter ones after early rejection."""

    is_constant = False

    def __init__(self, most: Sequence[int | None]) -> None:
        """Takes each proposer's longest draft.

        Args:
            most: per proposer, tokens; None where drafts are trees, which are drafted whole.
        """
        self._heuristics = [None if tokens is None else HeuristicDraftLength(tokens) for tokens in most]

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[Turns]:
        """What each request has grown or shrunk to with each proposer."""
        return [
            tuple(
                (place, limit if heuristic is None else min(limit, heuristic.length(wish.request_id)))
                for place, (limit, heuristic) in enumerate(zip(wish.limits, self._heuristics, strict=True))
                if limit > 0
            )
            for wish in wishes
        ]

    def verified(
        self,
        request_id: str,
        turns: Turns,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Grows or shrinks; who had no guess stays as it was."""
        heuristic = None if source is None else self._heuristics[source]
        if heuristic is not None:
            length = length_of(turns, source)
            heuristic.verified(request_id, length, min(drafted, length), min(accepted, length))

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        for heuristic in self._heuristics:
            if heuristic is not None:
                heuristic.forget(request_id)
