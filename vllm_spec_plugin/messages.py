"""Messages between scheduler and workers: a step's plan, its result and its drafts, each attached to one of vLLM's.

vLLM pickles its `SchedulerOutput`, `ModelRunnerOutput` and `DraftTokenIds` with their attributes. Empty plans and
results are not sent.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_spec_plugin.draft_plan import DraftPlan
from vllm_spec_plugin.metrics.by_method import CountersByMethod

_ATTRIBUTE = "vllm_spec_plugin"

# Per KV group the number of blocks that a request's table is cut to; None where the group is not indexed by position.
TableLengths = tuple[int | None, ...]
# Ids of the blocks for a request's branches, those of a branch together, and the number of blocks per branch.
Forks = tuple[Sequence[int], int]
# Branches besides the trunk, and depth, of a tree.
TreeShape = tuple[int, int]


class StepPlan(NamedTuple):
    """The scheduler's plan of a step for the workers, in addition to vLLM's. Keys are request ids.

    Attributes:
        draft_plans: proposers to try, with draft lengths; requests without one get no drafts.
        scopes: scopes of new requests' texts; None is private.
        rollback: new lengths of shortened block tables.
        forks: KV blocks for branches of trees that are verified.
        catch_up: for requests whose keys and values one of vLLM's draft models lacks, the first position, and the
            tokens from there on that it computes before it drafts.
    """

    draft_plans: Mapping[str, DraftPlan] = {}
    scopes: Mapping[str, str | None] = {}
    rollback: Mapping[str, TableLengths] = {}
    forks: Mapping[str, Forks] = {}
    catch_up: Mapping[str, tuple[int, list[int]]] = {}


class StepResult(NamedTuple):
    """The workers' result of a step for the scheduler, in addition to vLLM's. Keys are request ids.

    Attributes:
        counters: counts of verification; None if there are none.
        accepted_nodes: accepted nodes of verified trees with branches, numbered by `tree_order` of the proposer's
            configuration; in a chain the accepted nodes are the first ones.
        probe: (tokens, seconds) of steps run at start-up; sent once.
    """

    counters: CountersByMethod | None = None
    accepted_nodes: Mapping[str, tuple[int, ...]] = {}
    probe: Sequence[tuple[int, float]] = ()


class DraftResult(NamedTuple):
    """The workers' drafts of a step for the scheduler, in addition to vLLM's. Keys are request ids.

    Attributes:
        counters: counts of drafting; None if there are none.
        sources: index of the proposer that drafted, in the configuration.
        continued: for drafts that a grammar continues, the number of tokens before it.
        trees: shapes of drafted trees with branches.
    """

    counters: CountersByMethod | None = None
    sources: Mapping[str, int] = {}
    continued: Mapping[str, int] = {}
    trees: Mapping[str, TreeShape] = {}


NO_PLAN, NO_RESULT, NO_DRAFTS = StepPlan(), StepResult(), DraftResult()


def send(output: object, message: StepPlan | StepResult | DraftResult) -> None:
    """Attaches a message to one of vLLM's.

    Args:
        output: vLLM's message, changed in place: `SchedulerOutput` for a plan, `ModelRunnerOutput` for a result,
            `DraftTokenIds` for drafts.
        message: a message that is not empty; it must not be changed afterwards, as it is not copied within one process.
    """
    setattr(output, _ATTRIBUTE, message)


def plan_of(scheduler_output: object) -> StepPlan:
    """Returns the plan that came with vLLM's `SchedulerOutput`; an empty one if there is none."""
    plan: StepPlan = getattr(scheduler_output, _ATTRIBUTE, NO_PLAN)
    return plan


def result_of(model_runner_output: object) -> StepResult:
    """Returns the result that came with vLLM's `ModelRunnerOutput`; an empty one if there is none."""
    result: StepResult = getattr(model_runner_output, _ATTRIBUTE, NO_RESULT)
    return result


def drafts_of(draft_token_ids: object) -> DraftResult:
    """Returns what came with vLLM's `DraftTokenIds`; an empty message if there is none."""
    drafts: DraftResult = getattr(draft_token_ids, _ATTRIBUTE, NO_DRAFTS)
    return drafts
