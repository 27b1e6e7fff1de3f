"""A step that was planned, until its outcome and its time are known."""

from dataclasses import dataclass, field

from vllm_spec_plugin.scheduling.draft_length.control import Measured
from vllm_spec_plugin.turns import Turns


@dataclass(slots=True)
class PlannedStep(Measured):
    """A planned step; what is not known yet is 0.

    Attributes:
        turns: turns of each request that gets drafts at the step's end.
        asked: of the drafts that the step may verify, the turns by which they were drafted, if known.
        begun: time at which its planning began, in seconds of `time.perf_counter`.
        uncomputed: per request with turns, text tokens that the proposer with KV of its own has to compute.
    """

    turns: dict[str, Turns] = field(default_factory=dict)
    asked: dict[str, Turns] = field(default_factory=dict)
    begun: float = 0.0
    uncomputed: dict[str, int] = field(default_factory=dict)


# A step without drafts that is not measured.
UNMEASURED = PlannedStep()
