"""Draft lengths by policy: what the scheduler asks before each step, and what it tells after it.

Proposers go by their place in the configuration: 0 where there is only one.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from vllm_spec_plugin.turns import Turns


class DraftRequest(NamedTuple):
    """A request that may be drafted for in a step.

    Attributes:
        request_id: vLLM's id.
        limits: per proposer, most draft tokens; 0 is none at all. At least one is above 0.
        uncomputed_tokens: per proposer, text tokens that it has to compute before it can draft, beyond one.
        num_output_tokens: output tokens that the request has.
    """

    request_id: str
    limits: tuple[int, ...]
    uncomputed_tokens: tuple[int, ...]
    num_output_tokens: int = 0


class Batch(NamedTuple):
    """The step that will verify what is drafted now.

    Attributes:
        base_tokens: tokens that the target computes in any case: one per request that is drafted for, and others.
        num_requests: all that take part.
        context: tokens in their texts, added up.
        most_tokens: most draft tokens that token budget and KV blocks leave room for.
        others: requests that get an output token and may not be drafted for: they wait for the others' drafts.
    """

    base_tokens: int
    num_requests: int
    context: int
    most_tokens: int
    others: int = 0


class Drafting(NamedTuple):
    """What a proposer did in a step.

    Attributes:
        longest: most tokens that it was asked for, for one request; 0 if its turn did not come.
        num_drafted: draft tokens made.
        caught_up: text tokens that it computed, beyond one per draft.
        seconds: how long it took.
    """

    longest: int
    num_drafted: int
    caught_up: int
    seconds: float


class Forecast(NamedTuple):
    """What a policy expects of the latest plan it made.

    Attributes:
        tokens: output tokens of the step that verifies the drafts, of all requests.
        seconds: of that step and of making the drafts.
        plain_tokens: output tokens of a step without drafts.
        plain_seconds: of such a step.
        is_trial: whether a request is drafted for to learn, instead of what looked best for it.
    """

    tokens: float
    seconds: float
    plain_tokens: int
    plain_seconds: float
    is_trial: bool = False

    @property
    def gain(self) -> float:
        """Expected tokens per second over those without drafts."""
        return self.tokens / self.seconds / self.plain_tokens * self.plain_seconds

    @property
    def is_only_trial(self) -> bool:
        """Whether nothing else is drafted."""
        return self.is_trial and self.tokens <= self.plain_tokens


class Measured(NamedTuple):
    """A step that is over.

    Attributes:
        num_tokens: tokens that the target computed.
        num_requests: whose.
        context: tokens in their texts, added up.
        seconds: from the step's planning to the next one's.
        drafting: per proposer, what it did and how many of these seconds it took.
        has_drafts: whether drafts were among the tokens.
        forecast: what was expected of it; None if nothing was.
        num_drafts: draft tokens among the tokens.
        num_accepted: draft tokens among these that were accepted.
        num_output: output tokens that the step made.
    """

    num_tokens: int
    num_requests: int
    context: int
    seconds: float
    drafting: tuple[Drafting, ...]
    has_drafts: bool = False
    forecast: Forecast | None = None
    num_drafts: int = 0
    num_accepted: int = 0
    num_output: int = 0


class DraftLengthControl(Protocol):
    """Says who is to draft how many tokens.

    Attributes:
        is_constant: whether plans depend on nothing but limits: `plan` is then called once per combination of limits,
            and nothing else is.
    """

    is_constant: bool

    @property
    def forecast(self) -> Forecast | None:
        """What is expected of the latest plan; None where nothing is reckoned or nothing was planned."""
        ...

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """Per proposer and position, the probability that an average request accepts it if those before it are.

        Of trees, per node, that it is accepted. Empty where the policy estimates none.
        """
        ...

    def is_off(self, num_requests: int) -> bool:
        """Whether the next step is planned without drafts, whatever its requests are; `plan` is not to be called then.

        Args:
            num_requests: running requests.
        """
        ...

    def plan(self, requests: Sequence[DraftRequest], batch: Batch) -> list[Turns]:
        """Who drafts for each wish, and how much: from 1 to its limit."""
        ...

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
        """What a step did for a request that had turns: its text grew by the accepted draft tokens and one more.

        Args:
            request_id: whose.
            turns: who was to be asked for a draft, and for how many tokens.
            source: who gave a draft; None if nobody did: all were asked.
            drafted: tokens of it that were verified; what is beyond the source's turn does not count.
            accepted: how many of them were kept.
            num_output_tokens: output tokens of the request, those of the step included; 0 if that is not known.
            nodes: of a tree with branches, numbers of the accepted nodes in the order sent; None for chains.
        """
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
