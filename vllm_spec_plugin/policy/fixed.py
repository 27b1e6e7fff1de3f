"""The policy of fixed lengths."""

from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.policy.control import (
    DraftRequest,
    MeasuredStep,
    Off,
    StepBatch,
    StepForecast,
)


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

    def learned(self) -> None:
        """Learns nothing."""
