"""A step from its plan to its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_spec_plugin.policy.control import MeasuredStep, StepForecast
from vllm_spec_plugin.turns import Turns, length_of

# The plan of a request's drafts, and the index of the proposer that drafted; None if all were tried and none did.
Drafted = tuple[Turns, int | None]


@dataclass(slots=True)
class Step(MeasuredStep):
    """A planned step; what is not known yet is 0.

    Attributes:
        begun: time at which its planning began, in seconds of `time.perf_counter`.
        is_measured: whether the policy is told of it.
        turns: turns of each request that gets drafts at the step's end.
        in_prompt: those of them that the step leaves in the middle of their prompt.
        drafted_as: of the drafts that the step may verify, how they were made, if known.
        uncomputed: per request with turns, text tokens that the proposer with KV of its own has to compute.
        promise: expected result of the step that verifies these drafts; None without one.
        rests: whether a drafter in the runner does not run at its end.
        caught_up: tokens that it computes at its end before it drafts.
    """

    begun: float = 0.0
    is_measured: bool = False
    turns: dict[str, Turns] = field(default_factory=dict)
    in_prompt: set[str] = field(default_factory=set)
    drafted_as: Mapping[str, Drafted] = field(default_factory=dict)
    uncomputed: dict[str, int] = field(default_factory=dict)
    promise: StepForecast | None = None
    rests: bool = False
    caught_up: int = 0

    def longest(self, proposer: int) -> int:
        """Returns the longest draft that its turns ask a proposer for; 0 without a turn."""
        return max((length_of(own, proposer) for own in self.turns.values()), default=0)
