"""Models one proposer: presence and acceptance of its draft tokens, and their cost."""

from vllm_spec_plugin.jit import Floats, Ints
from vllm_spec_plugin.policy.acceptance import AcceptanceModel, expect
from vllm_spec_plugin.policy.control import Drafting
from vllm_spec_plugin.policy.draft_cost import DraftCost, DraftCostInStep
from vllm_spec_plugin.policy.request_index import RequestRows

# Prior probabilities: that a planned token is drafted, and that a draft token is accepted. Few drafts correct high
# values; with low ones, drafts that gain might never be tried.
_PRESENT, _ACCEPTED = 0.95, 0.8
# Prior time of a pass, as a share of a target's step of one token.
_PASS = 0.1


class ProposerEstimates:
    """Predicts a proposer's drafts, their acceptance and their cost, by request.

    Attributes:
        num_positions: K, maximum draft tokens.
        draft_cost: cost model of drafting.
    """

    def __init__(
        self,
        num_positions: int,
        half_life: float,
        requests: RequestRows,
        *,
        is_tree: bool = False,
        cost_in_step: DraftCostInStep | None = None,
    ) -> None:
        """Starts without observations.

        Args:
            num_positions: K, maximum draft tokens; for trees, maximum nodes.
            half_life: half-life of a request's acceptance history, in output tokens.
            requests: rows of the requests, shared by all models.
            is_tree: whether its drafts are trees, with nodes by path probability.
            cost_in_step: the cost of drafting, if its time is part of the target's step; None is measured alone.
        """
        self.num_positions = num_positions
        self.draft_cost: DraftCost | DraftCostInStep = cost_in_step or DraftCost()
        self._is_cold = True
        self._present = AcceptanceModel(num_positions, requests, half_life=half_life, initial=_PRESENT)
        self._accepted = AcceptanceModel(
            num_positions, requests, half_life=half_life, initial=_ACCEPTED, is_tree=is_tree
        )

    @property
    def acceptance(self) -> tuple[float, ...]:
        """[K], probability of acceptance given all positions before, for an average request; for trees, per node."""
        return tuple(self._accepted.average.tolist())

    def expect(self, rows: Ints, draft_prob: Floats, gains: Floats, draft_tokens: Floats) -> None:
        """Writes the expected draft and accepted tokens of n requests; see `acceptance.expect`."""
        accepted = self._accepted
        expect(self._present.effects, accepted.effects, accepted.is_tree, rows, draft_prob, gains, draft_tokens)

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
            rows: [n], rows of the requests.
            asked: [n], planned draft tokens; 0 if it was not asked.
            drafted: [n], verified draft tokens, at most `asked`.
            accepted: [n], accepted draft tokens.
            nodes: [n], of trees, bit i is whether node i was accepted.
            num_tokens: [n], number of output tokens.
            num_steps: steps of the server since the last call.
        """
        self._present.learn(rows, asked, drafted, nodes, num_tokens, num_steps=num_steps)
        self._accepted.learn(rows, drafted, accepted, nodes, num_tokens, num_steps=num_steps)

    def probed(self, step_seconds: float) -> None:
        """Sets the prior cost of drafting by the time of a target's step of one token, before any observation."""
        if isinstance(self.draft_cost, DraftCost) and not self.draft_cost.num_observations:
            self.draft_cost = DraftCost(_PASS * step_seconds)

    def measured(self, drafting: Drafting) -> None:
        """Updates the cost of drafting by a step in which it was asked; ignores the first, which may include set-up."""
        if not isinstance(self.draft_cost, DraftCost):
            return
        if self._is_cold:
            self._is_cold = not drafting.longest
            return
        passes = min(drafting.longest, self.num_positions)
        self.draft_cost.observe(passes, drafting.num_drafted, drafting.caught_up, drafting.seconds)
