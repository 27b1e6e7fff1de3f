"""Policies that ignore cost and batch: fixed lengths, and a heuristic."""

from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.draft_plan import DraftPlan, length_of
from vllm_spec_plugin.policy.control import (
    DraftRequest,
    MeasuredStep,
    Off,
    StepBatch,
    StepForecast,
)

# Tokens of a request's first draft by the heuristic, and by which drafts grow and shrink.
START, GROWTH, SHRINKAGE = 5, 2, 1


class FixedControl:
    """Plans all proposers in their order, each with its limit as draft length."""

    is_constant = True
    off = Off.NOT
    least_acceptance = 0.0
    forecast: StepForecast | None = None
    acceptance: tuple[tuple[float, ...], ...] = ()

    def begin_step(self, num_requests: int) -> bool:
        """Drafts in every step."""
        return True

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """Verifies all drafts."""
        return limit

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Returns the limits above 0 as draft plans."""
        return [tuple((i, limit) for i, limit in enumerate(request.limits) if limit > 0) for request in requests]

    def verified(self, *args: Any, **kwargs: Any) -> None:
        """Keeps no state."""

    def measured(self, step: MeasuredStep) -> None:
        """Keeps no state."""

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Keeps no state."""

    def forget(self, request_id: str) -> None:
        """Keeps no state."""


class HeuristicControl(FixedControl):
    """Lengthens a request's drafts after full acceptance and shortens them after a rejection; trees are drafted whole.

    The rule is that of Hugging Face transformers (`AssistedCandidateGenerator.update_candidate_strategy` in
    src/transformers/generation/candidate_generator.py, `num_assistant_tokens_schedule="heuristic_transient"`): two
    tokens more if all were accepted, else one less, but at least 1. It started at 5, its default until pull request
    33657 made a constant length the default. Three things differ: lengths have a maximum; each request and proposer has
    its own; and a draft shorter than planned counts only if a token of it was rejected, as it does not show how many
    further tokens would have been accepted.
    """

    is_constant = False

    def __init__(self, maxima: Sequence[int | None]) -> None:
        """Starts every request with `START` tokens.

        Args:
            maxima: per proposer, maximum draft tokens; None for trees.
        """
        self._maxima = maxima
        # Per request, a length per proposer.
        self._lengths: dict[str, list[int]] = {}

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Returns all proposers in their order, with each request's present lengths."""
        return [
            tuple(
                (i, limit if self._maxima[i] is None else min(limit, length))
                for i, (limit, length) in enumerate(zip(request.limits, self._of(request.request_id), strict=True))
                if limit > 0
            )
            for request in requests
        ]

    def verified(
        self,
        request_id: str,
        draft_plan: DraftPlan,
        source: int | None,
        drafted: int,
        accepted: int,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Lengthens or shortens the source's drafts for the request."""
        maximum = None if source is None else self._maxima[source]
        if source is None or maximum is None:
            return
        asked = length_of(draft_plan, source)
        drafted, lengths = min(drafted, asked), self._of(request_id)
        if accepted < drafted:
            lengths[source] = max(lengths[source] - SHRINKAGE, 1)
        elif 0 < asked <= drafted:
            lengths[source] = min(lengths[source] + GROWTH, maximum)

    def forget(self, request_id: str) -> None:
        """Drops a request's lengths."""
        self._lengths.pop(request_id, None)

    def _of(self, request_id: str) -> list[int]:
        if request_id not in self._lengths:
            self._lengths[request_id] = [min(START, maximum or START) for maximum in self._maxima]
        return self._lengths[request_id]
