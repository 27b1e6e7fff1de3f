"""What is known of one proposer: what its drafts bring, and what they cost."""

from vllm_spec_plugin.scheduling.draft_length.control import Drafting
from vllm_spec_plugin.scheduling.draft_length.draft_cost import DraftCost
from vllm_spec_plugin.scheduling.draft_length.expectation import Expectation
from vllm_spec_plugin.scheduling.draft_length.regression import NUM_ANCHORS

# What a pass is thought to take before one was measured, as a share of a target's step of one token. A wrong guess is
# cheap: one step corrects it.
_PASS = 0.1


class Lane:
    """One of the proposers.

    Attributes:
        expectation: of its drafts' fate.
        draft_cost: of its drafts.
    """

    def __init__(self, expectation: Expectation) -> None:
        """Knows nothing of what drafts take yet."""
        self.expectation = expectation
        self.draft_cost = DraftCost()

    @property
    def is_unknown(self) -> bool:
        """Whether what drafts take was measured so seldom that one bad step may have spoilt it."""
        return self.draft_cost.num_observations < NUM_ANCHORS

    def probed(self, step_seconds: float) -> None:
        """Guesses what drafts take from a target's step of one token, if none was measured."""
        if not self.draft_cost.num_observations:
            self.draft_cost = DraftCost(_PASS * step_seconds)

    def measured(self, drafting: Drafting) -> None:
        """Learns what drafts took, if it was asked for any."""
        passes = min(drafting.longest, self.expectation.num_places)
        self.draft_cost.observe(passes, drafting.num_drafted, drafting.caught_up, drafting.seconds)
