"""The contract between the scheduler and a policy of draft lengths: requests, plans, and measured steps.

Proposers are named by their index in the configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.policy.memory import Learned


class Off(Enum):
    """For how long a policy makes no drafts, from a step on: at most the next one, some steps, or many."""

    NOT = auto()
    SHORT = auto()
    LONG = auto()


class DraftRequest(NamedTuple):
    """A request that may have drafts in a step.

    Attributes:
        request_id: vLLM's id of the request.
        limits: per proposer, maximum draft tokens; at least one is above 0.
        uncomputed_tokens: per proposer, text tokens beyond one that it must compute before it drafts.
        num_output_tokens: number of output tokens so far.
    """

    request_id: str
    limits: tuple[int, ...]
    uncomputed_tokens: tuple[int, ...]
    num_output_tokens: int = 0


class StepBatch(NamedTuple):
    """The step that will verify what is drafted now.

    Attributes:
        base_tokens: tokens that the target computes besides drafts.
        num_requests: number of requests in the step.
        context: total tokens of their texts.
        max_draft_tokens: maximum draft tokens by token budget and KV blocks.
        others: number of requests that get an output token and no drafts.
    """

    base_tokens: int
    num_requests: int
    context: int
    max_draft_tokens: int
    others: int = 0


class Drafting(NamedTuple):
    """Work of a proposer in a step.

    Attributes:
        longest: maximum planned draft tokens of one request; 0 if it is not asked.
        num_drafted: number of draft tokens.
        caught_up: text tokens that it computed, beyond one per draft.
        seconds: time of the proposer in the step; 0 if it is not known.
        is_timed: whether it is known; else it is part of the step's.
    """

    longest: int
    num_drafted: int
    caught_up: int
    seconds: float
    is_timed: bool = True


class StepForecast(NamedTuple):
    """Expected result of a policy's latest plan.

    Attributes:
        tokens: output tokens of the step that verifies the drafts, all requests together.
        seconds: time of that step and of drafting.
        plain_tokens: output tokens of a step without drafts.
        plain_seconds: time of a step without drafts.
        seconds_per_token: time per output token of a later step without drafts and without prompts: an accepted draft
            token saves that, also where it is verified beside a prompt.
    """

    tokens: float
    seconds: float
    plain_tokens: int
    plain_seconds: float
    seconds_per_token: float

    def saved(self, tokens: float, seconds: float) -> float:
        """Returns the seconds saved if the step has this many output tokens and takes this long; below 0 is a loss."""
        return (tokens - self.plain_tokens) * self.seconds_per_token - (seconds - self.plain_seconds)

    @property
    def gain(self) -> float:
        """Expected tokens per second, as a ratio to those without drafts."""
        return self.tokens / self.seconds / self.plain_tokens * self.plain_seconds


@dataclass(slots=True)
class MeasuredStep:
    """A finished step.

    Attributes:
        num_tokens: number of tokens that the target computed.
        num_requests: number of requests in the step.
        context: total tokens of their texts.
        seconds: time from the step's planning to the next one's.
        drafting: work of each proposer, with its share of these seconds.
        has_drafts: whether the step verified drafts.
        forecast: expected result of the step; None without one.
        num_drafts: number of verified draft tokens.
        num_accepted: number of accepted draft tokens.
        num_output: number of output tokens.
        is_uneven: whether its requests have unequal numbers of tokens.
        drafter_passes: passes of a drafter whose time is part of the step's; the first one also for no drafts.
    """

    num_tokens: int = 0
    num_requests: int = 0
    context: int = 0
    seconds: float = 0.0
    drafting: tuple[Drafting, ...] = ()
    has_drafts: bool = False
    forecast: StepForecast | None = None
    num_drafts: int = 0
    num_accepted: int = 0
    num_output: int = 0
    is_uneven: bool = False
    drafter_passes: int = 0


class DraftLengthControl(Protocol):
    """Chooses proposers and draft lengths of each request in each step.

    Attributes:
        is_constant: whether plans depend on limits only: `plan` is then called once per combination of limits, and no
            other method is.
        off: for how long no drafts are made, from the step on that was planned last.
        least_acceptance: probability of acceptance below which a draft token costs more than it gains, by the latest
            plan; 0 without a cost model.
    """

    is_constant: bool
    off: Off
    least_acceptance: float

    @property
    def forecast(self) -> StepForecast | None:
        """Expected result of the latest plan; None without a plan or a cost model."""
        ...

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """Per proposer and position, the probability of acceptance given all positions before, for an average request.

        For trees, the unconditional probability per node. Empty if the policy estimates none.
        """
        ...

    def begin_step(self, num_requests: int) -> bool:
        """Decides whether a step makes drafts; called once in each step in which a request may have some.

        Args:
            num_requests: number of running requests.
        """
        ...

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """Returns the maximum draft tokens that a step with prompts verifies, so that first tokens hardly wait.

        Args:
            num_tokens: tokens of the step besides drafts.
            num_requests: number of requests in the step.
            context: total tokens of their texts.
            limit: draft tokens that are enough.
        """
        ...

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Returns each request's draft plan, with draft lengths from 1 to its limits."""
        ...

    def verified(
        self,
        request_id: str,
        draft_plan: DraftPlan,
        source: int | None,
        drafted: int,
        accepted: int,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        """Records a step's outcome for a request that had a draft plan.

        Args:
            request_id: id of the request.
            draft_plan: planned proposers and draft lengths.
            source: index of the proposer that drafted; None if all were tried and none did.
            drafted: number of verified draft tokens; those beyond the source's planned length do not count.
            accepted: number of accepted draft tokens.
            nodes: numbers of the accepted nodes of a tree with branches, in the order sent; None for chains.
        """
        ...

    def measured(self, step: MeasuredStep) -> None:
        """Records a finished step."""
        ...

    def probed(self, steps: Sequence[tuple[int, float]]) -> None:
        """Records steps timed at start-up, as (tokens, seconds)."""
        ...

    def forget(self, request_id: str) -> None:
        """Drops the state of a request that ended."""
        ...

    def learned(self) -> Learned | None:
        """Returns what a later server may begin with; None if nothing was learned."""
        ...
