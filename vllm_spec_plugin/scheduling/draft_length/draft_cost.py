"""What drafting costs in a step, learnt from the steps that are run."""

import numpy as np

from vllm_spec_plugin.jit import Floats
from vllm_spec_plugin.scheduling.draft_length.regression import ForgetfulRegression

# In passes, before anything is known: the step's own cost, a pass, a row in it, a token caught up.
_SHAPE = (0.3, 1.0, 0.05, 0.02)
_UNCERTAINTY = 1.0
# Clocks and shares of them end somewhere: what is shorter counts as this.
_SHORTEST = 1e-6


class DraftCost:
    """Seconds a proposer takes in a step: d0 + d1 * passes + d2 * rows + d3 * caught_up, 0 if it is not asked.

    passes: forward passes one after the other, the longest draft length among the requests; 0 for a
        proposer that has none.
    rows: draft tokens of all requests together.
    caught_up: tokens of text that the draft has to compute beyond one per drafting request.
    """

    def __init__(self, pass_seconds: float = 1e-3) -> None:
        """Starts from a guess.

        Args:
            pass_seconds: what a pass is thought to take; the first steps correct it, however far off.
        """
        mean = pass_seconds * np.array(_SHAPE)
        self._regression = ForgetfulRegression(mean, np.diag((_UNCERTAINTY * mean) ** 2), range(len(mean)))
        self._features: Floats = np.ones(len(mean))

    @property
    def num_observations(self) -> int:
        """How many steps it has learnt from; with none its seconds are a guess."""
        return self._regression.num_observations

    @property
    def coefficients(self) -> Floats:
        """[3]: expected seconds of drafting at all, per pass and per draft token, none below 0; until the next step."""
        return self._regression.weights[:3]

    @property
    def catch_up_seconds(self) -> float:
        """Expected seconds per token of text to catch up, never below 0."""
        return float(self._regression.weights[3])

    def observe(self, passes: int, rows: int, caught_up: int, seconds: float) -> float:
        """Learns from a step; one in which the proposer was not asked, or that can't be, is ignored.

        Args:
            passes: of the step, had all drafts that were asked for come; 0 and no rows: it was not asked.
            rows: of the step; 0 if nothing was found, which one pass told.
            caught_up: tokens of text caught up.
            seconds: what the proposer took; 0 counts as a microsecond.

        Returns:
            The seconds predicted before; 0 if it was not asked.
        """
        if passes < 0 or rows < 0 or caught_up < 0 or not passes + rows:
            return 0.0
        if not rows:
            passes = 1
        self._features[1:] = passes, rows, caught_up
        if seconds >= 0:
            seconds = max(seconds, _SHORTEST)
        return self._regression.observe(self._features, seconds)
