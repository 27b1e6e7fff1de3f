"""The arms of the host-time benchmark, its rounds, and what they come to."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.bench.host.cases import CELLS, NONE, OURS, answer, results
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.host.comparison import ARMS, HostArm, num_runs, plan_host_arms, run_all
from vllm_spec_plugin.tools.bench.host.parts import DRAFT, SAMPLER
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.planned_arms import PlannedArm, engines
from vllm_spec_plugin.tools.bench.plans import ArmPlan
from vllm_spec_plugin.tools.bench.quiet import QuietMachine
from vllm_spec_plugin.tools.demo import model_path

DRAFT_FOLDER = str(model_path("draft"))


def test_the_usual_arms_need_six_engines(tmp_path: Path) -> None:
    arms = plan_host_arms(ARMS, DRAFT_FOLDER, 8, tmp_path)
    ngram, draft_model = ["ngram, K = 0", "ngram, K = 4"], ["draft model, K = 0", "draft model, K = 4"]
    assert list(arms) == ["none", "stock ngram", "stock draft_model", *ngram, *draft_model, "optimal"]
    started = engines({name: arm.planned for name, arm in arms.items()})
    assert [names for names in started.values() if len(names) > 1] == [ngram, draft_model]
    assert [name for name, arm in arms.items() if arm.repeats] == ["ngram, K = 4"]
    assert [arm.planned.spec_tokens for arm in arms.values()] == [None, None, None, 0, 4, 0, 4, None]
    for name, arm in arms.items():
        assert name.split(",")[0].replace(" ", "_") in repr(arm.planned.plan.settings) or name in (
            *("none", "stock ngram", "stock draft_model", "optimal"),
        )


def test_no_arm_is_there_twice_and_none_always(tmp_path: Path) -> None:
    assert list(plan_host_arms(["none", "fixed:4", "none"], DRAFT_FOLDER, 8, tmp_path)) == ["none", "K = 4"]


@pytest.mark.parametrize("word", ["ngram", "ngram:a", "draft_model:99", "medusa:4"])
def test_a_word_that_says_nothing_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--arm"):
        plan_host_arms([word], DRAFT_FOLDER, 8, tmp_path)


def test_medians_of_steps_are_compared_round_by_round() -> None:
    found = results()
    for cell in CELLS:
        assert found.summaries[OURS, cell].host == {0: 0.0015, 1: 0.0027}
        assert found.summaries[OURS, cell].cpu_parts[DRAFT] == {0: 0.002, 1: 0.002}
        assert found.summaries[OURS, cell].wall_parts[SAMPLER] == pytest.approx({0: 0.0003, 1: 0.00054})
        added = found.added(OURS, cell)
        assert added is not None
        assert added.median == pytest.approx(0.0006)
    assert found.summaries[OURS, (False, 1)].wall == pytest.approx({0: 0.007, 1: 0.0094})
    assert found.summaries[OURS, (False, 1)].output_tokens == 4


class Engine:
    """An arm that notes its jobs."""

    def __init__(self) -> None:
        self.jobs: list[HostJob] = []

    def host(self, job: HostJob) -> HostAnswer:
        """An answer of 1 ms."""
        self.jobs.append(job)
        return answer(0.001)


def test_arms_take_turns_after_a_warm_up_and_each_does_its_own() -> None:
    plan = ArmPlan(None, 0, None)
    arms = {NONE: HostArm(PlannedArm(plan)), OURS: HostArm(PlannedArm(plan, 4), repeats=True)}
    own: dict[str, Any] = {name: Engine() for name in arms}
    told: list[str] = []
    machine = QuietMachine(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(arms, own, CELLS, HostJob(0, 5, False), 2, machine, lambda number, what: told.append(what))
    assert len(told) == num_runs(2, len(CELLS), 2) == 24
    assert told[0] == "warming up: none, 1 request, target replaced by a constant"
    assert told[-1] == "round 2/2: none, 32 requests, target computed"
    for name, arm in arms.items():
        jobs = own[name].jobs
        assert [(job.is_computed, job.num_requests) for job in jobs] == CELLS * 3
        assert [job.num_steps for job in jobs] == [1] * 4 + [5] * 8
        assert {(job.repeats, job.spec_tokens) for job in jobs} == {(arm.repeats, arm.planned.spec_tokens)}
        assert all(found.summaries[name, cell].host == {0: 0.001, 1: 0.001} for cell in CELLS)
    assert found.others == []
