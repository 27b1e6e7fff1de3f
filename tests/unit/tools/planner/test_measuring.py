"""Which jobs the engines get, and what the final run comes to."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.tools.planner.cases import answer, verified
from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import LoadAnswer, LoadJob, LoadRequest, PhaseAnswer, Progress
from vllm_spec_tools.planner.candidates import NONE, SUFFIX, Setting, chain_engines
from vllm_spec_tools.planner.measuring import (
    RECOMMENDED,
    MeasurementSizes,
    joining,
    measure,
    num_runs,
    num_verification_runs,
    settings,
    verify,
)

SIZES = MeasurementSizes((1, 4), 2, 7)
PROMPTS = [LoadRequest("edit", "a", 0.0, 65), LoadRequest("edit", "b", 0.0, 65), LoadRequest("chat", "c", 0.0, 65)]
ENGINE = chain_engines("/models/draft", None, 2)[0]


QUIET = NoiseGate(0.0, busy=lambda: 0.0, sleep=lambda seconds: None)


class FakeArms:
    """Arms without engines, by name; they note which are asked, and for what."""

    def __init__(self, rates: dict[str, float] | None = None) -> None:
        self.rates = rates or {}
        self.asked: list[str] = []
        self.batches: dict[str, list[LoadJob]] = defaultdict(list)
        self.loops: dict[str, list[LoadJob]] = defaultdict(list)

    def of(self, name: str) -> Any:
        self.asked.append(name)
        return SimpleNamespace(load=partial(self.load, name))

    def load(self, name: str, job: LoadJob) -> LoadAnswer:
        if job.record_steps:
            self.batches[name].append(job)
            return answer(job.streams, job.spec_tokens or 0, (0.5, 0.5), 0.01, 0.0)
        self.loops[name].append(job)
        count = job.phases[0].num_tokens
        progress = Progress([count / self.rates.get(name, 9.0)], [count], 10, [0.03, 0.05], [0.01], [0.5])
        return LoadAnswer(1.0, [PhaseAnswer(progress, 4, 12, 6)])


def test_every_setting_does_every_workload_at_every_level_in_every_round() -> None:
    arms, said = FakeArms(), list[str]()
    found = measure(ENGINE, arms.of, PROMPTS, SIZES, QUIET, said.append)
    assert len(said) == num_runs(ENGINE, 2, SIZES)
    counted = Counter((sample.setting, sample.workload, sample.concurrency) for sample in found.samples)
    assert set(counted.values()) == {2}
    assert len(counted) == len(settings(ENGINE)) * 2 * 2
    assert len(found.of(CASCADE, 4, 2)) == 4
    assert len(found.of(NONE)) == 8
    # No speculation is another engine, of which nothing can be asked.
    assert {(job.spec_tokens, job.spec_method) for job in arms.batches[NONE]} == {(None, None)}
    asked = {(job.spec_tokens, job.spec_method) for job in arms.batches[ENGINE.name]}
    assert asked == {(k, method) for k in (1, 2) for method in ("suffix", "draft_model", None)}
    # Requests join others, who are drafted for as far as it goes.
    loops = Counter((loop.streams, loop.spec_tokens, loop.spec_method) for loop in arms.loops[ENGINE.name])
    assert loops == {(4, 2, method): 2 for method in ("suffix", "draft_model", None)}
    assert {(loop.streams, loop.spec_tokens) for loop in arms.loops[NONE]} == {(4, None)}
    assert list(found.first_tokens) == [(setting, 4) for setting in joining(ENGINE)]
    assert found.first_token_seconds(Setting(CASCADE, 2), 4) == [0.03, 0.05] * 2
    assert found.first_token_seconds(Setting(CASCADE, 2), 1) == [0.03] * 4


def test_one_at_a_time_an_engine_does_its_settings_of_a_round_before_the_next_one() -> None:
    arms, said, sizes = FakeArms(), list[str](), replace(SIZES, one_at_a_time=True)
    found = measure(ENGINE, arms.of, PROMPTS, sizes, QUIET, said.append)
    assert [name for name, _ in groupby(arms.asked)] == [NONE, ENGINE.name, NONE, ENGINE.name, NONE]
    assert len(said) == num_runs(ENGINE, 2, sizes)
    assert len(found.of(CASCADE, 4, 2)) == 4


def test_jobs_are_the_workloads_prompts_and_a_warm_up_is_short() -> None:
    engine = chain_engines(None, None, 1)[0]
    arms = FakeArms()
    measure(engine, arms.of, PROMPTS, MeasurementSizes((1,), 2, 7), QUIET, lambda what: None)
    assert not arms.loops
    warm_ups, jobs = arms.batches[SUFFIX][:-4], arms.batches[SUFFIX][-4:]
    given = [(job.phases[0].requests, job.seed) for job in jobs]
    assert [[one.num_tokens for one in job.phases[0].requests] for job in warm_ups] == [[16], [16]]
    assert [(request.prompt, seed) for (request,), seed in given] == [("a", 7), ("c", 7), ("b", 8), ("c", 8)]
    assert {request.num_tokens for (request,), _ in given} == {65}


def test_the_final_run_does_the_same_with_both_in_turns() -> None:
    arms, said, sizes = FakeArms({NONE: 100, RECOMMENDED: 150}), list[str](), MeasurementSizes((1, 4), 3, 0)
    found = verify(arms.of, PROMPTS, sizes, QUIET, said.append)
    assert len(said) == num_verification_runs(sizes)
    assert arms.loops[NONE] == arms.loops[RECOMMENDED]
    assert [job.streams for job in arms.loops[NONE]] == [1, 4, 1, 4, 1, 4, 1, 4]
    for one in found.values():
        assert one.speedup.median == pytest.approx(1.5)
        ttft = one.latencies[NONE]["ttft"]
        assert [ttft["p50"], ttft["p99"]] == pytest.approx([0.04, 0.05], abs=1e-3)
        assert one.acceptance_length == pytest.approx(2.5)
        assert one.draft_length == pytest.approx(1.2)
    arms, sizes = FakeArms(), MeasurementSizes((1, 4), 2, 0, one_at_a_time=True)
    verify(arms.of, PROMPTS, sizes, QUIET, said.append)
    # A warm-up before each of two levels; the second round is in reverse, so neither starts twice in a row.
    assert arms.asked == [NONE] * 4 + [RECOMMENDED] * 8 + [NONE] * 4


def test_rounds_are_compared_one_by_one() -> None:
    found = verified(1.3, 1.1, 1.5)
    assert found.speedup.median == pytest.approx(1.3, abs=0.01)
    assert found.speedup.low == pytest.approx(1.1, abs=0.01)
    assert len(found.tokens_per_second[NONE]) == 3
