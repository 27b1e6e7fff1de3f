"""Policies that look at neither cost nor batch."""

from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.scheduling.draft_length.control import Batch, DraftRequest, Forecast, Measured
from vllm_spec_plugin.turns import Turns, length_of

# Of the heuristic, in tokens: a request's first draft, and what it grows and shrinks by.
START, GROWTH, SHRINKAGE = 5, 2, 1


class FixedControl:
    """Asks all proposers in their order, each for as many tokens as the limits allow."""

    is_constant = True
    forecast: Forecast | None = None
    acceptance: tuple[tuple[float, ...], ...] = ()

    def is_off(self, num_requests: int) -> bool:
        """Never."""
        return False

    def plan(self, requests: Sequence[DraftRequest], batch: Batch) -> list[Turns]:
        """Every limit."""
        return [tuple((i, limit) for i, limit in enumerate(request.limits) if limit > 0) for request in requests]

    def verified(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to learn."""

    def measured(self, step: Measured) -> None:
        """Nothing to learn."""

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing to forget."""


class HeuristicControl(FixedControl):
    """Lengthens a request's drafts after full acceptance and shortens them after a rejection; trees are drafted whole.

    The rule is that of Hugging Face transformers (`AssistedCandidateGenerator.update_candidate_strategy` in
    src/transformers/generation/candidate_generator.py, `num_assistant_tokens_schedule="heuristic_transient"`): two
    tokens more if all were accepted, else one less, but at least 1. It started at 5, its default until pull request
    33657 made a constant length the default. Three things differ: there is a most; each request and proposer has its
    own length; and a draft shorter than asked for counts only if a token of it was rejected, as where a proposer
    stops does not say how far it would have been right.
    """

    is_constant = False

    def __init__(self, most: Sequence[int | None]) -> None:
        """Starts every request with `START` tokens.

        Args:
            most: per proposer, most tokens; None where drafts are trees.
        """
        self._most = most
        # Of each request, a length per proposer.
        self._lengths: dict[str, list[int]] = {}

    def plan(self, requests: Sequence[DraftRequest], batch: Batch) -> list[Turns]:
        """All proposers in their order, for as many tokens as each request has grown or shrunk to."""
        return [
            tuple(
                (i, limit if self._most[i] is None else min(limit, length))
                for i, (limit, length) in enumerate(zip(request.limits, self._of(request.request_id), strict=True))
                if limit > 0
            )
            for request in requests
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
        """Grows or shrinks; proposers without a draft stay as they were."""
        most = None if source is None else self._most[source]
        if source is None or most is None:
            return
        asked = length_of(turns, source)
        drafted, lengths = min(drafted, asked), self._of(request_id)
        if accepted < drafted:
            lengths[source] = max(lengths[source] - SHRINKAGE, 1)
        elif 0 < asked <= drafted:
            lengths[source] = min(lengths[source] + GROWTH, most)

    def forget(self, request_id: str) -> None:
        """Drops a request's lengths."""
        self._lengths.pop(request_id, None)

    def _of(self, request_id: str) -> list[int]:
        if request_id not in self._lengths:
            self._lengths[request_id] = [min(START, most or START) for most in self._most]
        return self._lengths[request_id]
