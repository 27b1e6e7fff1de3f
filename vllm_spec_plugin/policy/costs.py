"""Measured costs of the target's steps and of drafting, as planning needs them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.policy.control import MeasuredStep
from vllm_spec_plugin.policy.draft_cost import DraftCost
from vllm_spec_plugin.policy.memory import Learned
from vllm_spec_plugin.policy.regression import NUM_FIRST
from vllm_spec_plugin.policy.step_cost import PASS, ROW, StepCost

# Prior time of a proposer's pass, as a share of a target's step of one token.
_PASS_SHARE = 0.1
# Level of measured times over a former server's, or its inverse, beyond which they are of another machine.
_SAME_MACHINE = 1.25
# Acceptance that is low for every proposer.
_LOW_ACCEPTANCE = 0.2


class ProposerTraits(NamedTuple):
    """Traits of a proposer that planning needs.

    Attributes:
        num_positions: maximum draft tokens; of trees, maximum nodes.
        is_tree: whether its drafts are trees, with nodes by path probability.
        is_in_step: whether the time of a target's step includes its drafting, for whatever is planned.
        in_one_pass: whether a draft of any length takes one pass, so that further tokens cost little.
    """

    num_positions: int
    is_tree: bool = False
    is_in_step: bool = False
    in_one_pass: bool = False


class ObservedStep(NamedTuple):
    """What comparing steps needs of a finished one.

    Attributes:
        seconds: its time, without that of a drafter that ran though nobody drafts.
        catch_up_seconds: seconds in which a proposer computed missing text.
        has_drafts: whether it verified drafts or made them.
    """

    seconds: float
    catch_up_seconds: float
    has_drafts: bool


class Costs:
    """Cost models of the target and its proposers.

    Attributes:
        step_cost: cost model of the target's steps.
        draft_costs: per proposer; None where drafting is part of the step.
        table: [L, 4], seconds of each proposer per step, position, draft token and token of catch-up.
        in_step: [L], whether drafting is part of the target's step.
        is_probed: whether steps were timed at start-up.
    """

    def __init__(
        self, proposers: Sequence[ProposerTraits], max_step_tokens: int, learned: Learned | None = None
    ) -> None:
        """Starts from what a former server learned, or from guesses.

        Args:
            proposers: traits of each proposer, in the order of the configuration.
            max_step_tokens: maximum tokens of a step.
            learned: of a former server with the same proposers; None for nothing.
        """
        self._proposers, self._max_step_tokens = tuple(proposers), max_step_tokens
        self.in_step = np.array([each.is_in_step for each in proposers], np.bool_)
        self.table = np.empty((len(proposers), 4))
        self.is_probed = False
        # The first drafting of a proposer may include its set-up.
        self._is_cold = [True] * len(proposers)
        # Whether measured steps have not yet shown that it is the former server's machine.
        self._is_unchecked = learned is not None and bool(learned.step_tokens)
        if learned is not None and learned.step_tokens:
            curve = tuple(zip(learned.step_tokens, learned.step_seconds, strict=True))
            self._start(curve, learned.step_others, learned.draft_costs)
        else:
            self._start()

    def _start(
        self,
        curve: Sequence[tuple[float, float]] = (),
        others: Sequence[float] = (),
        draft_costs: Sequence[Sequence[float]] = (),
    ) -> None:
        """Starts the models: of steps from a curve, of drafting from costs or else a share of a step."""
        has_drafter = bool(self.in_step.any())
        self.step_cost = StepCost(self._max_step_tokens, curve, others, has_drafter=has_drafter)
        pass_seconds = _PASS_SHARE * float(self.step_cost.seconds([1.0], 1, 0)[0])
        self.draft_costs = [
            None if each.is_in_step else DraftCost(pass_seconds, draft_costs[i] if draft_costs else ())
            for i, each in enumerate(self._proposers)
        ]
        for i in range(len(self._proposers)):
            self._note(i)

    def probed(self, steps: Sequence[tuple[int, float]]) -> bool:
        """Restarts from steps timed at start-up, as (tokens, seconds), unless a former server's costs fit them.

        Returns:
            Whether the former server's costs stay.
        """
        self.is_probed = True
        if self._is_unchecked:
            ratios = [seconds / float(self.step_cost.seconds([tokens], 1, 0)[0]) for tokens, seconds in steps]
            if _is_same(float(np.median(ratios or [1.0]))):
                return True
        self._is_unchecked = False
        self._start(steps)
        return False

    def is_other_machine(self) -> bool:
        """Whether the first steps show that the former server's costs do not hold here; they are dropped then."""
        if not self._is_unchecked or self.step_cost.num_observations < NUM_FIRST:
            return False
        self._is_unchecked = False
        if _is_same(self.step_cost.level):
            return False
        self._start()
        return True

    def observe(self, step: MeasuredStep) -> "ObservedStep":
        """Updates the models by a finished step."""
        drafts, timed, catch_up = False, 0.0, 0.0
        for i, drafting in enumerate(step.drafting):
            drafts |= drafting.longest > 0
            timed += drafting.seconds
            cost = self.draft_costs[i]
            if cost is not None and drafting.longest:
                if not self._is_cold[i]:
                    passes = min(drafting.longest, self._proposers[i].num_positions)
                    cost.observe(passes, drafting.num_drafted, drafting.caught_up, drafting.seconds)
                    self._note(i)
                self._is_cold[i] = False
        passes, rows, _ = drafter = self._work_of_drafter(step)
        has_drafts, seconds = step.has_drafts or drafts, step.seconds
        self.step_cost.observe(
            step.num_tokens, step.num_requests, step.context, seconds - timed, has_drafts=has_drafts, drafter=drafter
        )
        if self.in_step[-1]:
            self._note(-1)
            if passes and not drafts:
                # Compared is a step without speculation: its drafter rests.
                others = self.step_cost.times.others
                seconds -= float(others[PASS] * passes + others[ROW] * rows)
        for costs, drafting in zip(self.table, step.drafting, strict=True):
            if drafting.caught_up:
                most = drafting.seconds if drafting.is_timed else seconds
                catch_up += min(drafting.caught_up * float(costs[3]), most)
        return ObservedStep(seconds, catch_up, has_drafts)

    def _work_of_drafter(self, step: MeasuredStep) -> tuple[int, int, bool]:
        """Returns passes, rows and unevenness of a drafter whose time is part of a step, as `StepCost.observe`."""
        if not self.in_step[-1]:
            return 0, 0, False
        native = step.drafting[-1]
        # The first pass has a row per request, also where nothing is drafted.
        rows = native.num_drafted or step.num_requests * min(step.drafter_passes, 1)
        return step.drafter_passes, rows + native.caught_up, step.is_uneven

    def must_gain(self, num_requests: int) -> bool:
        """Whether a draft token per request pays by the times of the probe even if few are accepted."""
        if not self.is_probed:
            return False
        plain, verifying = self.step_cost.seconds([num_requests, 2 * num_requests], num_requests, 0)
        asking, position, token, _ = self.table[0]
        return bool(verifying + asking + position + token * num_requests < (1 + _LOW_ACCEPTANCE) * plain)

    def _note(self, proposer: int) -> None:
        """Notes a proposer's present costs for planning."""
        cost, others = self.draft_costs[proposer], self.step_cost.times.others
        if cost is not None:
            self.table[proposer] = cost.coefficients
        elif self._proposers[proposer].in_one_pass:
            self.table[proposer] = others[PASS], 0.0, others[ROW], others[ROW]
        else:
            self.table[proposer] = 0.0, others[PASS], others[ROW], others[ROW]


def _is_same(ratio: float) -> bool:
    """Whether a ratio of times is that of one machine."""
    return 1 / _SAME_MACHINE < ratio < _SAME_MACHINE
