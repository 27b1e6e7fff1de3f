"""A step from its plan to its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_spec_plugin.draft_plan import DraftPlan, length_of
from vllm_spec_plugin.policy.control import MeasuredStep, StepForecast

# The plan of a request's drafts; the index of the proposer that drafted, None if all were tried and none did; and if a
# grammar continues the draft, the number of tokens before it.
Drafted = tuple[DraftPlan, int | None, int | None]
# Index of a proposer, its verified draft tokens, and its accepted ones.
Verified = tuple[int, int, int]


@dataclass(slots=True)
class Step(MeasuredStep):
    """A planned step; what is not known yet is 0.

    Attributes:
        begun: time at which its planning began, in seconds of `time.perf_counter`.
        is_measured: whether the policy is told of it.
        draft_plans: draft plan of each request that gets drafts at the step's end.
        in_prompt: those of them that the step leaves in the middle of their prompt.
        drafted_as: of the drafts that the step may verify, how they were made, if known.
        uncomputed: per request with a draft plan, text tokens that the proposer with KV of its own has to compute.
        next_forecast: expected result of the step that verifies these drafts; None without one.
        rests: whether a drafter in the runner does not run at its end.
        caught_up: tokens that it computes at its end before it drafts.
    """

    begun: float = 0.0
    is_measured: bool = False
    draft_plans: dict[str, DraftPlan] = field(default_factory=dict)
    in_prompt: set[str] = field(default_factory=set)
    drafted_as: Mapping[str, Drafted] = field(default_factory=dict)
    uncomputed: dict[str, int] = field(default_factory=dict)
    next_forecast: StepForecast | None = None
    rests: bool = False
    caught_up: int = 0

    def longest(self, proposer: int) -> int:
        """Returns the longest draft that a proposer is asked for; 0 without one."""
        # There are few different plans.
        return max([length_of(own, proposer) for own in set(self.draft_plans.values())], default=0)
