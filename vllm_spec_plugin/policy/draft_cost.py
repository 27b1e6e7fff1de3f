"""Models the time of drafting in a step, by regression on measured steps."""

import numpy as np

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.policy.regression import ForgetfulRegression
from vllm_spec_plugin.policy.step_cost import StepCost

# Prior costs, in passes: of a step, a pass, a draft token, a token of catch-up. And their relative standard deviation.
_SHAPE = (0.3, 1.0, 0.05, 0.02)
_UNCERTAINTY = 1.0
# Minimum time of an observation, in seconds: clocks have a resolution.
_SHORTEST = 1e-6


class DraftCostInStep:
    """The cost of a drafter whose time is part of the target's step: `StepCost` has it."""

    def __init__(self, step_cost: StepCost, *, in_one_pass: bool = False) -> None:
        """Takes the cost from the target's.

        Args:
            step_cost: cost model of the target's steps.
            in_one_pass: whether a draft of any length takes one pass, so that further tokens cost little.
        """
        self._step_cost, self._in_one_pass = step_cost, in_one_pass

    @property
    def catch_up_seconds(self) -> float:
        """Expected seconds per text token of catch-up: those of a draft token."""
        return float(self._step_cost.drafter_seconds[1])

    @property
    def coefficients(self) -> Floats:
        """[3], see `DraftCost`."""
        each_pass, each_token, _ = self._step_cost.drafter_seconds
        if self._in_one_pass:
            return np.array((each_pass, 0.0, each_token))
        return np.array((0.0, each_pass, each_token))


class DraftCost:
    """Models a proposer's seconds in a step: d0 + d1 * passes + d2 * rows + d3 * caught_up; 0 if it is not asked.

    passes: sequential forward passes, the longest draft length of all requests.
    rows: draft tokens of all requests together.
    caught_up: text tokens that the proposer computes beyond one per drafting request.
    """

    def __init__(self, pass_seconds: float = 1e-3) -> None:
        """Starts from a prior.

        Args:
            pass_seconds: prior seconds of a pass; the first steps correct it by any factor.
        """
        mean = pass_seconds * np.array(_SHAPE)
        self._regression = ForgetfulRegression(mean, np.diag((_UNCERTAINTY * mean) ** 2), range(len(mean)))
        self._features: Floats = np.ones(len(mean))

    @property
    def num_observations(self) -> int:
        """Number of observed steps; before the first one the prior holds."""
        return self._regression.num_observations

    @property
    def coefficients(self) -> Floats:
        """[3], expected seconds per step, per pass and per draft token, at least 0; valid until the next step."""
        return self._regression.weights[:3]

    @property
    def catch_up_seconds(self) -> float:
        """Expected seconds per text token of catch-up, at least 0."""
        return float(self._regression.weights[3])

    def observe(self, passes: int, rows: int, caught_up: int, seconds: float) -> float:
        """Updates the model by a step; ignores steps in which it is not asked, and impossible ones.

        Args:
            passes: passes of the planned drafts; 0 with no rows is a step in which it is not asked.
            rows: number of draft tokens; with 0, one pass is counted.
            caught_up: text tokens of catch-up.
            seconds: time of the proposer; 0 counts as a microsecond.

        Returns:
            The seconds predicted before; 0 if it is not asked.
        """
        if passes < 0 or rows < 0 or caught_up < 0 or not passes + rows:
            return 0.0
        if not rows:
            passes = 1
        self._features[1:] = passes, rows, caught_up
        if seconds >= 0:
            seconds = max(seconds, _SHORTEST)
        return self._regression.observe(self._features, seconds)
