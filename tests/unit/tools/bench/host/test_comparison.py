"""The arms of the host-time benchmark, its rounds, figures and report."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.bench.host.cases import CELLS, NONE, OURS, answer, results
from vllm_spec_plugin.tools.bench.arms import engines
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan
from vllm_spec_plugin.tools.bench.host.comparison import ARMS, TARGETS, HostArm, plan_host_arms, run_all
from vllm_spec_plugin.tools.bench.host.parts import DRAFT, SAMPLER
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.demo import model_path

DRAFT_FOLDER = str(model_path("draft"))


def test_the_usual_arms_need_six_engines(tmp_path: Path) -> None:
    arms = plan_host_arms(ARMS, DRAFT_FOLDER, 8, tmp_path)
    ngram, draft_model = ["ngram, K = 0", "ngram, K = 4"], ["draft model, K = 0", "draft model, K = 4"]
    assert list(arms) == [NONE, "vLLM's ngram, K = 4", "vLLM's draft_model, K = 4", *ngram, *draft_model, "optimal"]
    started = engines(arms)
    assert [names for names in started.values() if len(names) > 1] == [ngram, draft_model]
    assert [name for name, arm in arms.items() if arm.repeats] == ["ngram, K = 4"]
    assert [arm.spec_tokens for arm in arms.values()] == [None, None, None, 0, 4, 0, 4, None]
    for name in (*ngram, *draft_model):
        assert name.split(",")[0].replace(" ", "_") in repr(arms[name].plan.settings)


def test_medians_of_steps_are_kept_by_round() -> None:
    found = results().measurements
    for is_computed, level in CELLS:
        place = (OURS, TARGETS[is_computed], level)
        assert found.rounds(*place, "host") == {0: 0.0015, 1: 0.0027}
        assert found.rounds(*place, f"cpu, {DRAFT}") == {0: 0.002, 1: 0.002}
        assert found.rounds(*place, f"wall, {SAMPLER}") == pytest.approx({0: 0.0003, 1: 0.00054})
    assert found.rounds(OURS, TARGETS[False], 1, "wall") == pytest.approx({0: 0.007, 1: 0.0094})
    assert found.median(OURS, TARGETS[False], 1, "output_tokens") == 4
    assert found.median(OURS, TARGETS[False], 1, "drafting") == pytest.approx(0.004)


class Engine:
    """An arm that notes its jobs."""

    def __init__(self) -> None:
        self.jobs: list[HostJob] = []

    def host(self, job: HostJob) -> HostAnswer:
        """An answer of 1 ms."""
        self.jobs.append(job)
        return answer(0.001)


def test_arms_take_turns_after_a_warm_up_and_each_does_its_own() -> None:
    plan = ArmPlan(None)
    arms = {NONE: HostArm(plan), OURS: HostArm(plan, 4, repeats=True)}
    own: dict[str, Any] = {name: Engine() for name in arms}
    told: list[str] = []
    gate = NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(arms, own.__getitem__, CELLS, HostJob(0, 5, False), 2, gate, lambda number, what: told.append(what))
    assert len(told) == 24
    assert told[0] == "warming up: no speculation, 1 request, target replaced by a constant"
    assert told[-1] == "round 2/2: no speculation, 32 requests, target computed"
    for name, arm in arms.items():
        jobs = own[name].jobs
        assert [(job.is_computed, job.num_requests) for job in jobs] == CELLS * 3
        assert [job.num_steps for job in jobs] == [1] * 4 + [5] * 8
        assert {(job.repeats, job.spec_tokens) for job in jobs} == {(arm.repeats, arm.spec_tokens)}
        assert found.measurements.rounds(name, TARGETS[True], 32, "host") == {0: 0.001, 1: 0.001}
    assert (found.rounds, found.others) == (2, [])
