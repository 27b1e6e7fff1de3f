"""The closed loop of the verification."""

from typing import Any

import pytest

from tests.unit.tools.planner.cases import verified
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import LoadAnswer, LoadJob, PhaseAnswer, Progress, Request
from vllm_spec_tools.planner.candidates import NONE
from vllm_spec_tools.planner.measuring import RECOMMENDED, Sizes, num_verification_runs, verify

PROMPTS = [Request("edit", f"text {number}", 0.0, 20) for number in range(3)]


class FakeArm:
    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.jobs: list[LoadJob] = []

    def load(self, job: LoadJob) -> LoadAnswer:
        self.jobs.append(job)
        count = job.phases[0].num_tokens
        progress = Progress([count / self.rate], [count], 10, [0.02, 0.04], [0.01], [0.5])
        return LoadAnswer(1.0, [PhaseAnswer(progress, 4, 12, 6)])


def test_both_do_the_same_in_turns() -> None:
    arms: dict[str, Any] = {NONE: FakeArm(100), RECOMMENDED: FakeArm(150)}
    sizes = Sizes((1, 4), 3, 0)
    said: list[str] = []
    machine = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    found = verify(arms.__getitem__, PROMPTS, sizes, machine, said.append)
    assert len(said) == num_verification_runs(sizes)
    assert arms[NONE].jobs == arms[RECOMMENDED].jobs
    assert [job.streams for job in arms[NONE].jobs] == [1, 4, 1, 4, 1, 4, 1, 4]
    for one in found.values():
        assert one.speedup.median == pytest.approx(1.5)
        ttft = one.latencies[NONE]["ttft"]
        assert [ttft["p50"], ttft["p99"]] == pytest.approx([0.03, 0.04], abs=1e-3)
        assert one.acceptance_length == pytest.approx(2.5)
        assert one.draft_length == pytest.approx(1.2)


def test_one_at_a_time_an_engine_does_all_levels_before_the_other() -> None:
    arms: dict[str, Any] = {NONE: FakeArm(100), RECOMMENDED: FakeArm(150)}
    asked: list[str] = []

    def arm_of(name: str) -> Any:
        asked.append(name)
        return arms[name]

    said: list[str] = []
    machine = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)
    sizes = Sizes((1, 4), 2, 0, one_at_a_time=True)
    verify(arm_of, PROMPTS, sizes, machine, said.append)
    # A warm-up before each of two levels; the second round is in reverse, so neither starts twice in a row.
    assert asked == [NONE] * 4 + [RECOMMENDED] * 8 + [NONE] * 4
    assert len(said) == num_verification_runs(sizes)


def test_rounds_are_compared_one_by_one() -> None:
    found = verified(1.3, 1.1, 1.5)
    assert found.speedup.median == pytest.approx(1.3, abs=0.01)
    assert found.speedup.low == pytest.approx(1.2, abs=0.01)
    assert len(found.tokens_per_second[NONE]) == 3
