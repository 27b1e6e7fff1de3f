"""What is known of one proposer: which of its draft tokens are accepted, and what they cost."""

from vllm_spec_plugin.jit import Floats, Ints
from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceModel, expect
from vllm_spec_plugin.scheduling.draft_length.control import Drafting
from vllm_spec_plugin.scheduling.draft_length.draft_cost import DraftCost
from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows

# Probabilities before any observation: that a proposer makes a token that it is asked for, and that it is accepted.
# High ones are corrected by a few drafts; with low ones drafts that gain might never be tried.
_PRESENT, _ACCEPTED = 0.95, 0.8
# A pass, as a share of a target's step of one token, before any was measured.
_PASS = 0.1


class ProposerModel:
    """Learns what the next drafts of a proposer bring, request by request.

    Attributes:
        num_positions: K, most draft tokens.
        draft_cost: seconds of drafting.
    """

    def __init__(self, num_positions: int, half_life: float, requests: RequestRows, *, is_tree: bool = False) -> None:
        """Starts without observations.

        Args:
            num_positions: K; of trees, most nodes.
            half_life: output tokens of a request in which observations of it count half.
            requests: shared by all models.
            is_tree: whether its drafts are trees, whose first nodes are the most probable ones.
        """
        self.num_positions = num_positions
        self.draft_cost = DraftCost()
        self._is_cold = True
        self._present = AcceptanceModel(num_positions, requests, half_life=half_life, initial=_PRESENT)
        self._accepted = AcceptanceModel(
            num_positions, requests, half_life=half_life, initial=_ACCEPTED, is_tree=is_tree
        )

    @property
    def acceptance(self) -> tuple[float, ...]:
        """[K]: of an average request, the probability that each position is accepted if those before it are.

        Of trees: that the node is accepted.
        """
        return tuple(self._accepted.average.tolist())

    def expect(self, rows: Ints, draft_prob: Floats, gains: Floats, draft_tokens: Floats) -> None:
        """Writes what the next drafts of n requests are expected to bring, as `acceptance.expect` says."""
        accepted = self._accepted
        expect(self._present.ratings, accepted.ratings, accepted.is_tree, rows, draft_prob, gains, draft_tokens)

    def learn(
        self,
        rows: Ints,
        asked: Ints,
        drafted: Ints,
        accepted: Ints,
        nodes: Ints,
        num_tokens: Ints,
        *,
        num_steps: int = 1,
    ) -> None:
        """Updates the estimates from verified steps of n requests, in their order.

        Args:
            rows: [n], of the requests.
            asked: [n], draft tokens that it was asked for; 0 if it was not.
            drafted: [n], draft tokens of its that were verified, at most `asked`.
            accepted: [n], how many of them were accepted.
            nodes: [n], of trees, bit i is whether node i was accepted.
            num_tokens: [n], output tokens of the step.
            num_steps: steps of the server since it last learned.
        """
        self._present.learn(rows, asked, drafted, nodes, num_tokens, num_steps=num_steps)
        self._accepted.learn(rows, drafted, accepted, nodes, num_tokens, num_steps=num_steps)

    def probed(self, step_seconds: float) -> None:
        """Guesses the cost of drafting from a target's step of one token, if none was measured."""
        if not self.draft_cost.num_observations:
            self.draft_cost = DraftCost(_PASS * step_seconds)

    def measured(self, drafting: Drafting) -> None:
        """Learns the cost of drafting, if it was asked for any; the first time is not typical."""
        if self._is_cold:
            self._is_cold = not drafting.longest
            return
        passes = min(drafting.longest, self.num_positions)
        self.draft_cost.observe(passes, drafting.num_drafted, drafting.caught_up, drafting.seconds)
