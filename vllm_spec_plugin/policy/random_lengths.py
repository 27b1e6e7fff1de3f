"""A policy of random draft lengths: tests of exactness do not depend on how long steps take."""

from collections.abc import Sequence
from random import Random

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.policy.control import DraftRequest, Off, StepBatch
from vllm_spec_plugin.policy.fixed import FixedControl

# Share of steps without any draft, as a policy has that switches drafting off; share of steps that begin a phase
# without, in which a drafter may rest, and its maximum length.
_OFF, _OFF_FOR_LONG, _MAX_OFF = 1 / 16, 1 / 96, 12


class RandomControl(FixedControl):
    """Plans proposers in a random order, each with a draft length from 0 to its limit, all equally likely.

    It does all that `optimal` may do: any length for any request in any step, steps without drafts, drafts cut beside
    prompts. None of it depends on drafted or sampled tokens, so outputs keep their distribution.
    """

    is_constant = False

    def __init__(self, seed: int) -> None:
        """Starts the sequence of random numbers."""
        self._rng, self._off_left = Random(seed), 0

    def begin_step(self, num_requests: int) -> bool:
        """Switches drafting off in a share of steps, in some for long."""
        self._off_left = max(self._off_left - 1, 0)
        if not self._off_left and self._rng.random() < _OFF_FOR_LONG:
            self._off_left = self._rng.randint(1, _MAX_OFF)
        self.off = Off.LONG if self._off_left else Off.NOT
        return not self._off_left and self._rng.random() >= _OFF

    def max_beside_prompts(self, num_tokens: int, num_requests: int, context: int, limit: int) -> int:
        """Verifies a random part of the drafts."""
        return self._rng.randint(0, limit)

    def plan(self, requests: Sequence[DraftRequest], batch: StepBatch) -> list[DraftPlan]:
        """Draws each request's draft plan."""
        return [self._draft_plan(request.limits) for request in requests]

    def _draft_plan(self, limits: Sequence[int]) -> DraftPlan:
        lengths = [(i, self._rng.randint(0, limit)) for i, limit in enumerate(limits)]
        draft_plan = [planned for planned in lengths if planned[1] > 0]
        self._rng.shuffle(draft_plan)
        return tuple(draft_plan)
