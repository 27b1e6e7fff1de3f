"""Which jobs the engines get."""

from collections import Counter
from typing import Any

from tests.unit.planner.cases import WORKLOADS, answer
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.bench.records import Answer, Job
from vllm_spec_plugin.planner.candidates import CASCADE, NGRAM, chain_engines
from vllm_spec_plugin.planner.measuring import Sizes, measure, num_runs, settings
from vllm_spec_plugin.planner.samples import NONE

SIZES = Sizes((1, 4), 2, 7)
ENGINE = chain_engines("/models/draft", None, 2)[0]


class FakeArm:
    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, job: Job) -> Answer:
        self.jobs.append(job)
        return answer(len(job.prompts), job.spec_tokens or 0, (0.5, 0.5), 0.01, 0.0)


def test_every_setting_does_every_workload_at_every_level_in_every_round() -> None:
    arms: dict[str, Any] = {NONE: FakeArm(), ENGINE.name: FakeArm()}
    said: list[str] = []
    machine = QuietMachine(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    found = measure(ENGINE, arms, WORKLOADS, SIZES, machine, said.append)
    assert len(said) == num_runs(ENGINE, len(WORKLOADS), SIZES)
    counted = Counter((sample.setting, sample.workload, sample.concurrency) for sample in found.samples)
    assert set(counted.values()) == {2}
    assert len(counted) == len(settings(ENGINE)) * 2 * 2
    assert len(found.of(CASCADE, 4, 2)) == 4
    assert len(found.of(NONE)) == 8
    # No speculation is another engine, of which nothing can be asked.
    assert {(job.spec_tokens, job.spec_method) for job in arms[NONE].jobs} == {(None, None)}
    asked = {(job.spec_tokens, job.spec_method) for job in arms[ENGINE.name].jobs}
    assert asked == {(k, method) for k in (1, 2) for method in ("ngram", "draft_model", None)}


def test_jobs_are_the_workloads_prompts_and_a_warm_up_is_short() -> None:
    engine = chain_engines(None, None, 1)[0]
    arms: dict[str, Any] = {NONE: FakeArm(), NGRAM: FakeArm()}
    machine = QuietMachine(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    measure(engine, arms, WORKLOADS, Sizes((1,), 2, 7), machine, lambda what: None)
    warm_up, *jobs = arms[NGRAM].jobs
    assert warm_up.num_tokens == 16
    assert [(job.prompts, job.seed) for job in jobs] == [(("a",), 7), (("c",), 7), (("b",), 8), (("c",), 8)]
    assert {job.num_tokens for job in jobs} == {65}
