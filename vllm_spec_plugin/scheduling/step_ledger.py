"""Steps from their planning until their outcome and their time are known."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_spec_plugin.policy.control import MeasuredStep, StepForecast
from vllm_spec_plugin.turns import Turns, length_of


@dataclass(slots=True)
class Step(MeasuredStep):
    """A planned step; what is not known yet is 0.

    Attributes:
        begun: time at which its planning began, in seconds of `time.perf_counter`.
        is_measured: whether the policy is told of it.
        turns: turns of each request that gets drafts at the step's end.
        asked: of the drafts that the step may verify, the turns by which they were drafted, if known.
        uncomputed: per request with turns, text tokens that the proposer with KV of its own has to compute.
        sources: of the drafts that the step verifies, proposers that are not the usual one.
        sampled: requests with turns that got a token: they may have drafts.
        promise: expected result of the step that verifies these drafts; None without one.
        rests: whether vLLM's drafter does not run at its end.
        caught_up: tokens that it computes at its end before it drafts.
    """

    begun: float = 0.0
    is_measured: bool = False
    turns: dict[str, Turns] = field(default_factory=dict)
    asked: dict[str, Turns] = field(default_factory=dict)
    uncomputed: dict[str, int] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    sampled: set[str] = field(default_factory=set)
    promise: StepForecast | None = None
    rests: bool = False
    caught_up: int = 0

    def longest(self, proposer: int) -> int:
        """Returns the longest draft that its turns ask a proposer for; 0 without a turn."""
        return max((length_of(own, proposer) for own in self.turns.values()), default=0)


class StepLedger:
    """Steps in the order of their planning; with asynchronous scheduling and pipelines several are under way.

    A step's time begins with its planning or, if later, with the end of the step before.

    Attributes:
        latest: the step that was begun last.
        before: the one before it.
        finished: the step that ended last.
    """

    latest: Step
    before: Step
    finished: Step

    def __init__(self) -> None:
        self.clear()
        self._under_way: deque[Step] = deque()
        self._finished_at = 0.0

    def begin(self, now: float) -> None:
        """Opens a step, whose planning begins."""
        self.before, self.latest = self.latest, Step(begun=now)
        self._under_way.append(self.latest)

    def clear(self) -> None:
        """Drops what is known of past steps, as their requests have ended."""
        self.latest = self.before = self.finished = Step(rests=True)

    def take(self) -> Step:
        """Removes and returns the earliest step, of which the outcome has come."""
        return self._under_way.popleft()

    def finish(self, step: Step, now: float) -> None:
        """Sets the time of a step that ends now."""
        step.seconds = now - max(step.begun, self._finished_at)
        self.finished, self._finished_at = step, now
