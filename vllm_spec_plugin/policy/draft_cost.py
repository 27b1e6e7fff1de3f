"""Models the time of a proposer whose drafting is measured by itself."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.policy.regression import Regression, learn

# Prior costs of drafting that is measured by itself, in passes: of a step, a pass, a draft token, a token of catch-up.
# Their standard deviations are twice as large.
_SHAPE = (0.3, 1.0, 0.05, 0.02)
# Minimum time of such an observation, in seconds: clocks have a resolution.
_SHORTEST = 1e-6


class DraftCost:
    """Models a proposer's seconds in a step: d0 + d1 * passes + d2 * rows + d3 * caught_up; 0 if it is not asked.

    passes: sequential forward passes, the longest draft length of all requests.
    rows: draft tokens of all requests together.
    caught_up: text tokens that the proposer computes beyond one per drafting request.
    """

    def __init__(self, pass_seconds: float = 1e-3, learned: Sequence[float] = ()) -> None:
        """Starts from a prior.

        Args:
            pass_seconds: prior seconds of a pass; the first step corrects it by any factor.
            learned: `coefficients` that were learned before, which take its place; empty for none.
        """
        if learned:
            pass_seconds = max(learned[0] + learned[1], _SHORTEST) / sum(_SHAPE[:2])
        mean = pass_seconds * np.array(_SHAPE)
        self._features: Floats = np.ones(len(mean))
        self._regression = Regression.of(learned or mean, np.diag(4 * mean**2), range(len(mean)))

    @property
    def coefficients(self) -> Floats:
        """[4], expected seconds per step, pass, draft token and token of catch-up, at least 0; read-only."""
        return self._regression.weights

    @property
    def num_observations(self) -> int:
        """Number of observed steps; before the first one the prior holds."""
        return int(self._regression.num_seen[0])

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
        self._features[1:] = passes if rows else 1, rows, caught_up
        return learn(self._regression, self._features, max(seconds, _SHORTEST) if seconds >= 0 else seconds)
