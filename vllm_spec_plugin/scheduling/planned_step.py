"""A step that was planned, until its outcome and its time are known."""

from dataclasses import dataclass, field

from vllm_spec_plugin.scheduling.draft_length.control import Drafting, Forecast, Measured
from vllm_spec_plugin.turns import Turns


@dataclass(slots=True)
class PlannedStep:
    """A planned step; attributes as in `Measured`, and what its outcome is compared with.

    Attributes:
        turns: turns of each request that gets drafts at the step's end.
        uncomputed: per request with turns, text tokens that the proposer with KV of its own has to compute.
        forecast: forecast of the drafts that the step verifies.
    """

    num_tokens: int = 0
    num_requests: int = 0
    context: int = 0
    num_drafts: int = 0
    drafting: tuple[Drafting, ...] = ()
    turns: dict[str, Turns] = field(default_factory=dict)
    uncomputed: dict[str, int] = field(default_factory=dict)
    num_output: int = 0
    num_accepted: int = 0
    forecast: Forecast | None = None

    def measured(self, seconds: float) -> Measured:
        """Returns the step as the policy learns it."""
        return Measured(
            num_tokens=self.num_tokens,
            num_requests=self.num_requests,
            context=self.context,
            seconds=seconds,
            drafting=self.drafting,
            has_drafts=self.num_drafts > 0,
            forecast=self.forecast,
            num_drafts=self.num_drafts,
            num_accepted=self.num_accepted,
            num_output=self.num_output,
        )
