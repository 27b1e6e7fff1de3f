"""The arms of the host-time benchmark, its rounds, figures and report."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.bench.host.cases import CELLS, NONE, OURS, answer, results
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.arms import PlannedArm, engines
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan
from vllm_spec_plugin.tools.bench.host.comparison import ARMS, TARGETS, HostArm, plan_host_arms, run_all
from vllm_spec_plugin.tools.bench.host.parts import DRAFT, SAMPLER
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.host.report import report_of
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.report import StackedBars

DRAFT_FOLDER = str(model_path("draft"))


def test_the_usual_arms_need_six_engines(tmp_path: Path) -> None:
    arms = plan_host_arms(ARMS, DRAFT_FOLDER, 8, tmp_path)
    ngram, draft_model = ["ngram, K = 0", "ngram, K = 4"], ["draft model, K = 0", "draft model, K = 4"]
    assert list(arms) == [NONE, "vLLM's ngram, K = 4", "vLLM's draft_model, K = 4", *ngram, *draft_model, "optimal"]
    started = engines({name: arm.planned for name, arm in arms.items()})
    assert [names for names in started.values() if len(names) > 1] == [ngram, draft_model]
    assert [name for name, arm in arms.items() if arm.repeats] == ["ngram, K = 4"]
    assert [arm.planned.spec_tokens for arm in arms.values()] == [None, None, None, 0, 4, 0, 4, None]
    for name in (*ngram, *draft_model):
        assert name.split(",")[0].replace(" ", "_") in repr(arms[name].planned.plan.settings)


def test_no_arm_is_there_twice_and_no_speculation_always(tmp_path: Path) -> None:
    assert list(plan_host_arms(["none", "fixed:4", "none"], DRAFT_FOLDER, 8, tmp_path)) == [NONE, "fixed K = 4"]


@pytest.mark.parametrize("spec", ["ngram", "ngram:a", "draft_model:99", "medusa:4"])
def test_what_names_no_arm_is_refused(spec: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--arm"):
        plan_host_arms([spec], DRAFT_FOLDER, 8, tmp_path)


def test_medians_of_steps_are_kept_by_round() -> None:
    found = results().measurements
    for is_computed, level in CELLS:
        place = (OURS, TARGETS[is_computed], level)
        assert found.rounds(*place, "host") == {0: 0.0015, 1: 0.0027}
        assert found.rounds(*place, f"cpu, {DRAFT}") == {0: 0.002, 1: 0.002}
        assert found.rounds(*place, f"wall, {SAMPLER}") == pytest.approx({0: 0.0003, 1: 0.00054})
    assert found.rounds(OURS, TARGETS[False], 1, "wall") == pytest.approx({0: 0.007, 1: 0.0094})
    assert found.median(OURS, TARGETS[False], 1, "output_tokens") == 4


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
    gate = NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(arms, own, CELLS, HostJob(0, 5, False), 2, gate, lambda number, what: told.append(what))
    assert len(told) == 24
    assert told[0] == "warming up: no speculation, 1 request, target replaced by a constant"
    assert told[-1] == "round 2/2: no speculation, 32 requests, target computed"
    for name, arm in arms.items():
        jobs = own[name].jobs
        assert [(job.is_computed, job.num_requests) for job in jobs] == CELLS * 3
        assert [job.num_steps for job in jobs] == [1] * 4 + [5] * 8
        assert {(job.repeats, job.spec_tokens) for job in jobs} == {(arm.repeats, arm.planned.spec_tokens)}
        assert found.measurements.rounds(name, TARGETS[True], 32, "host") == {0: 0.001, 1: 0.001}
    assert (found.rounds, found.others) == (2, [])


def test_the_report_has_what_arms_add_and_their_parts() -> None:
    report = report_of(results(), {}, 2)
    assert report.conclusion == [
        f"{OURS} adds +0.60 ±0.05 ms of host time a step to {NONE} (32 requests, target computed)."
    ]
    tables = {table.title: {row[0]: list(row[1:]) for row in table.rows} for table in report.tables}
    host = tables[f"Host time per step by requests, ms: of {NONE}, and what others add; {TARGETS[False]}"]
    assert host == {NONE: ["1.50 ±17%"] * 2, OURS: ["+0.60 ±0.05"] * 2}
    parts = tables["CPU time per step by part, ms; 32 requests, target computed"]
    assert (parts["draft model"], parts["forward"]) == (["0.00", "2.00"], ["10.00", "10.00"])
    assert parts["drafted per request"] == ["0.0", "4.0"]
    assert len(report.charts) == len(CELLS)
    assert isinstance(report.charts[0], StackedBars)
    assert report.charts[0].parts["draft model"] == pytest.approx({NONE: 0.0, OURS: 2.0})
    assert report.problems == []
    assert report_of(results(1), {}, 2).problems == ["interrupted: these are the first 1 of 2 rounds"]
