"""Draft lengths by policy: what the scheduler asks before each step, and what it tells after it. Imports no vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Wish:
    """A request that may be drafted for in a step.

    Attributes:
        request_id: whose.
        limit: most draft tokens, at least 1.
        gap: text tokens that the proposer would have to compute before it can draft, beyond one.
    """

    request_id: str
    limit: int
    gap: int = 0


@dataclass(frozen=True)
class Batch:
    """The step that will verify what is drafted now.

    Attributes:
        base_tokens: tokens that the target computes in any case: one per request that is drafted for, and others.
        num_requests: all that take part.
        context: tokens in their texts, added up.
        most_tokens: most draft tokens that token budget and KV blocks leave room for.
    """

    base_tokens: int
    num_requests: int
    context: int
    most_tokens: int


@dataclass(frozen=True)
class Measured:
    """A step that is over.

    Attributes:
        num_tokens: tokens that the target computed.
        num_requests: whose.
        context: tokens in their texts, added up.
        seconds: from the step's planning to the next one's.
        draft_seconds: how many of them went into drafting.
        longest: the longest draft made.
        num_drafted: draft tokens made.
        caught_up: text tokens that the proposer computed, beyond one per draft.
    """

    num_tokens: int
    num_requests: int
    context: int
    seconds: float
    draft_seconds: float
    longest: int
    num_drafted: int
    caught_up: int


@dataclass(frozen=True)
class Forecast:
    """What a policy expects of the latest plan it made.

    Attributes:
        tokens: output tokens of the step that verifies the drafts.
        seconds: of that step and of making the drafts.
        seconds_per_token: of a step without drafts.
        acceptance: per place, the running average over requests of the probability that it is right if those before
            it were.
        tried: what was done to learn instead of what looked best; empty if nothing.
    """

    tokens: float
    seconds: float
    seconds_per_token: float
    acceptance: tuple[float, ...]
    tried: str = ""


class DraftLengthControl(Protocol):
    """Says how many tokens to draft."""

    @property
    def forecast(self) -> Forecast | None:
        """What is expected of the latest plan; None where nothing is reckoned or nothing was planned."""
        ...

    def plan(self, wishes: Sequence[Wish], batch: Batch) -> list[int]:
        """Draft lengths, one per wish, 0 to its limit."""
        ...

    def verified(self, request_id: str, asked: int, drafted: int, accepted: int) -> None:
        """A request's drafts were verified: `drafted` of those asked for, of which `accepted` were kept."""
        ...

    def advance(self, request_id: str, num_tokens: int) -> None:
        """A request's text grew by so many tokens."""
        ...

    def measured(self, step: Measured) -> None:
        """A step is over."""
        ...

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """What steps of some sizes took at start-up, as (tokens, seconds)."""
        ...

    def forget(self, request_id: str) -> None:
        """A request is gone."""
        ...
