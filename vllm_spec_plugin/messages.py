"""Messages between scheduler and workers: a step's plan and its result, each one attribute on vLLM's own message.

vLLM pickles its `SchedulerOutput` and `ModelRunnerOutput` with their attributes. A step with nothing to say has none.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.turns import Turns

_ATTRIBUTE = "vllm_spec_plugin"

# Per KV group the number of blocks that a request's table is cut to; None where the group is not indexed by position.
TableLengths = tuple[int | None, ...]
# Ids of the blocks for a request's branches, those of a branch together, and the number of blocks per branch.
Forks = tuple[Sequence[int], int]
# Branches besides the trunk, and depth, of a tree.
TreeShape = tuple[int, int]


class StepPlan(NamedTuple):
    """What the scheduler tells the workers of a step, beside vLLM's plan. Keys are request ids.

    Attributes:
        turns: proposers to ask for a draft, and tokens; requests without turns are not drafted for.
        scopes: scopes that texts of new requests are shared in; None is private.
        rollback: lengths of block tables that got shorter.
        forks: KV blocks for branches of trees that are verified or drafted.
    """

    turns: Mapping[str, Turns] = {}
    scopes: Mapping[str, str | None] = {}
    rollback: Mapping[str, TableLengths] = {}
    forks: Mapping[str, Forks] = {}


class StepResult(NamedTuple):
    """What the workers tell the scheduler of a step, beside vLLM's output. Keys are request ids.

    Attributes:
        counters: counts of the step; None if nothing was counted.
        sources: index in the configuration of the proposer that drafted.
        trees: shapes of drafted trees, of those with branches only.
        accepted_nodes: accepted nodes of verified trees with branches, as numbered by `tree_order` of the proposer's
            configuration. Of a chain the first nodes are accepted.
        probe: (tokens, seconds) of steps that were run at start-up; sent once.
    """

    counters: CountersByMethod | None = None
    sources: Mapping[str, int] = {}
    trees: Mapping[str, TreeShape] = {}
    accepted_nodes: Mapping[str, tuple[int, ...]] = {}
    probe: Sequence[tuple[int, float]] = ()


NO_PLAN, NO_RESULT = StepPlan(), StepResult()


def send(output: Any, message: StepPlan | StepResult) -> None:
    """Sends a message along with one of vLLM's.

    Args:
        output: vLLM's `SchedulerOutput` for a plan, `ModelRunnerOutput` for a result; changed in place.
        message: not empty, and not changed afterwards: within one process it is not copied.
    """
    setattr(output, _ATTRIBUTE, message)


def plan_of(scheduler_output: Any) -> StepPlan:
    """Returns the plan that came with vLLM's `SchedulerOutput`; an empty one if there is none."""
    plan: StepPlan = getattr(scheduler_output, _ATTRIBUTE, NO_PLAN)
    return plan


def result_of(model_runner_output: Any) -> StepResult:
    """Returns the result that came with vLLM's `ModelRunnerOutput`; an empty one if there is none."""
    result: StepResult = getattr(model_runner_output, _ATTRIBUTE, NO_RESULT)
    return result
