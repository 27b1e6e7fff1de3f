"""Messages between scheduler and workers reach the other process with vLLM's own."""

import pickle
from typing import Any

import pytest
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from vllm_spec_plugin.messages import (
    NO_DRAFTS,
    NO_PLAN,
    NO_RESULT,
    DraftResult,
    StepPlan,
    StepResult,
    drafts_of,
    plan_of,
    result_of,
    send,
)
from vllm_spec_plugin.metrics.by_method import CountersByMethod

PLAN = StepPlan({"a": ((0, 3), (1, 2))}, {"b": "salt:x", "c": None}, {"a": (2, None)}, {"a": ([4, 5], 1)})


def runner_output() -> ModelRunnerOutput:
    return ModelRunnerOutput(req_ids=["a"], req_id_to_index={"a": 0})


def in_other_process(output: Any) -> Any:
    """Pickles an output as vLLM's queues between processes do."""
    return pickle.loads(pickle.dumps(output, protocol=pickle.HIGHEST_PROTOCOL))


@pytest.mark.parametrize("plan", [PLAN, StepPlan(draft_plans={"a": ((0, 1),)})])
def test_a_plan_arrives_in_another_process(plan: StepPlan) -> None:
    output = SchedulerOutput.make_empty()
    send(output, plan)
    arrived = plan_of(in_other_process(output))
    assert type(arrived) is StepPlan
    assert arrived == plan


def test_result_and_drafts_arrive_in_another_process() -> None:
    counters = CountersByMethod()
    counters.of("ngram").drafts = 2
    counters.of("medusa").count_error("raised")
    output, drafts = runner_output(), DraftTokenIds(["a"], [[3]])
    result, drafted = (
        StepResult(counters, {"a": (0, 2)}, [(8, 0.5)]),
        DraftResult(counters, {"a": 1}, {"a": 1}, {"a": (2, 3)}),
    )
    send(output, result)
    send(drafts, drafted)
    for sent, arrived in (
        (result, result_of(in_other_process(output))),
        (drafted, drafts_of(in_other_process(drafts))),
    ):
        assert arrived[1:] == sent[1:]
        assert arrived.counters is not None
        assert arrived.counters.to_payload() == counters.to_payload()


def test_outputs_without_a_message_have_an_empty_one() -> None:
    """Also those that another scheduler or runner made."""
    assert plan_of(in_other_process(SchedulerOutput.make_empty())) is NO_PLAN
    assert result_of(in_other_process(runner_output())) is NO_RESULT
    assert not any(NO_PLAN)
    assert drafts_of(in_other_process(DraftTokenIds([], []))) is NO_DRAFTS
    assert not any(NO_RESULT)
    assert not any(NO_DRAFTS)
