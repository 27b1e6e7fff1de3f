"""Which jobs the engines get."""

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.unit.tools.planner.cases import answer
from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import Answer, Job, LoadAnswer, LoadJob, PhaseAnswer, Progress, Request
from vllm_spec_tools.planner.candidates import NONE, SUFFIX, Setting, chain_engines
from vllm_spec_tools.planner.measuring import Sizes, joining, measure, num_runs, settings

SIZES = Sizes((1, 4), 2, 7)
PROMPTS = [Request("edit", "a", 0.0, 65), Request("edit", "b", 0.0, 65), Request("chat", "c", 0.0, 65)]
ENGINE = chain_engines("/models/draft", None, 2)[0]


class FakeArm:
    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.loops: list[LoadJob] = []

    def run(self, job: Job) -> Answer:
        self.jobs.append(job)
        return answer(len(job.prompts), job.spec_tokens or 0, (0.5, 0.5), 0.01, 0.0)

    def load(self, job: LoadJob) -> LoadAnswer:
        self.loops.append(job)
        return LoadAnswer(1.0, [PhaseAnswer(Progress([1.0], [9], 9, [0.03, 0.05]), 0, 0, 0)])


def test_every_setting_does_every_workload_at_every_level_in_every_round() -> None:
    arms: dict[str, Any] = {NONE: FakeArm(), ENGINE.name: FakeArm()}
    said: list[str] = []
    machine = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    found = measure(ENGINE, arms.__getitem__, PROMPTS, SIZES, machine, said.append)
    assert len(said) == num_runs(ENGINE, 2, SIZES)
    counted = Counter((sample.setting, sample.workload, sample.concurrency) for sample in found.samples)
    assert set(counted.values()) == {2}
    assert len(counted) == len(settings(ENGINE)) * 2 * 2
    assert len(found.of(CASCADE, 4, 2)) == 4
    assert len(found.of(NONE)) == 8
    # No speculation is another engine, of which nothing can be asked.
    assert {(job.spec_tokens, job.spec_method) for job in arms[NONE].jobs} == {(None, None)}
    asked = {(job.spec_tokens, job.spec_method) for job in arms[ENGINE.name].jobs}
    assert asked == {(k, method) for k in (1, 2) for method in ("suffix", "draft_model", None)}
    # Requests join others, who are drafted for as far as it goes.
    loops = Counter((loop.streams, loop.spec_tokens, loop.spec_method) for loop in arms[ENGINE.name].loops)
    assert loops == {(4, 2, method): 2 for method in ("suffix", "draft_model", None)}
    assert {(loop.streams, loop.spec_tokens) for loop in arms[NONE].loops} == {(4, None)}
    assert list(found.first_tokens) == [(setting, 4) for setting in joining(ENGINE)]
    assert found.first_token_seconds(Setting(CASCADE, 2), 4) == [0.03, 0.05] * 2
    assert found.first_token_seconds(Setting(CASCADE, 2), 1) == [0.03] * 4


def test_one_at_a_time_an_engine_does_its_settings_of_a_round_before_the_next_one() -> None:
    arms: dict[str, Any] = {NONE: FakeArm(), ENGINE.name: FakeArm()}
    asked: list[str] = []

    def arm_of(name: str) -> Any:
        if asked[-1:] != [name]:
            asked.append(name)
        return arms[name]

    said: list[str] = []
    machine = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    sizes = replace(SIZES, one_at_a_time=True)
    found = measure(ENGINE, arm_of, PROMPTS, sizes, machine, said.append)
    assert asked == [NONE, ENGINE.name, NONE, ENGINE.name, NONE]
    assert len(said) == num_runs(ENGINE, 2, sizes)
    assert len(found.of(CASCADE, 4, 2)) == 4


def test_jobs_are_the_workloads_prompts_and_a_warm_up_is_short() -> None:
    engine = chain_engines(None, None, 1)[0]
    arms: dict[str, Any] = {NONE: FakeArm(), SUFFIX: FakeArm()}
    machine = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    measure(engine, arms.__getitem__, PROMPTS, Sizes((1,), 2, 7), machine, lambda what: None)
    assert not arms[SUFFIX].loops
    *warm_ups, _, _, _, _ = arms[SUFFIX].jobs
    jobs = arms[SUFFIX].jobs[len(warm_ups) :]
    assert [job.num_tokens for job in warm_ups] == [16, 16]
    assert [(job.prompts, job.seed) for job in jobs] == [(("a",), 7), (("c",), 7), (("b",), 8), (("c",), 8)]
    assert {job.num_tokens for job in jobs} == {65}
