"""Making a recording, with engines that are formulas."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.tools.bench.replay.cases import DRAFT_MODEL, NGRAM
from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.load.records import Request
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.records import Answer, Job, Step
from vllm_spec_plugin.tools.bench.replay.record import KINDS, Sizes, fixed, record_costs, record_outcomes
from vllm_spec_plugin.tools.bench.replay.traces import Verified

SIZES = Sizes(num_requests=2, num_tokens=12, levels=(1, 4), lengths=(1, 2, 4), num_steps=4, rounds=2, seed=0)


class Formula(Arm):
    """A step is 10 ms and 1 ms a token, the plugin 1 ms more, drafting 2 ms per token of the draft model."""

    def __init__(self, *, has_plugin: bool) -> None:
        # No process.
        self._has_plugin = has_plugin
        self.jobs: list[Job] = []
        self.asked: list[tuple[str, list[list[int]]]] = []

    def run(self, job: Job) -> Answer:
        self.jobs.append(job)
        count, length = len(job.prompts), job.spec_tokens or 0
        drafting = 0.002 * length if job.spec_method == "draft_model" else 0.0
        tokens = count * (1 + length)
        seconds = 0.010 + 0.001 * tokens + 0.001 * self._has_plugin + drafting
        step = Step(count, tokens, False, seconds, drafting, drafting)
        prompt = Step(count, 5 * count, True, 0.1, drafting, drafting)
        return Answer(1.0, 1.0, [[1] * 5] * count, [[1]] * count, [prompt, *[step] * 5], 0, 0, 0)

    def record(self, requests: Sequence[Request], spec_method: str, responses: Any, seed: int) -> dict[str, Any]:
        self.asked.append((spec_method, responses))
        drafted = 3 if spec_method == "ngram" else 4
        outcomes = [[[0, []], *[[drafted, [0, 1]]] * (request.num_tokens - 1)] for request in requests]
        return {"responses": [[7] * 12] * len(requests), "prompt_tokens": [5] * len(requests), "outcomes": outcomes}

    def probe(self) -> list[tuple[int, float]]:
        return [(1, 0.01), (8, 0.02)]


@pytest.fixture
def config() -> PluginConfig:
    section = {"method": "cascade", "proposers": [NGRAM, DRAFT_MODEL]}
    return fixed(parse_config({"proposer": section}, "a test"), 4)


def test_all_proposers_draft_for_the_same_responses(config: PluginConfig) -> None:
    arm = Formula(has_plugin=True)
    traces = record_outcomes(arm, config, SIZES, lambda what: None)
    assert [trace.kind for trace in traces] == [kind for kind in KINDS for _ in range(2)]
    # The second proposer is told what the first one's requests said.
    assert arm.asked[:2] == [("ngram", []), ("draft_model", [[7] * 12] * 2)]
    # What was drafted near the end was cut.
    assert traces[0].num_tokens == 7
    assert [outcomes[1] for outcomes in traces[0].outcomes] == [Verified(3, (0, 1)), Verified(4, (0, 1))]


def test_costs_are_those_of_the_engines(config: PluginConfig) -> None:
    arms = {"none": Formula(has_plugin=False), "plugin": Formula(has_plugin=True)}
    machine = NoiseGate(0, busy=lambda: None, sleep=lambda seconds: None)
    costs = record_costs(arms.__getitem__, config, SIZES, machine, lambda what: None)
    assert costs.without_plugin(4, 4) == pytest.approx(0.014)
    assert costs.target(4, 4, has_drafts=False) == pytest.approx(0.015)
    assert costs.target(4, 12, has_drafts=True) == pytest.approx(0.023)
    assert costs.proposing(0, 4, 4, 0) == 0
    assert costs.proposing(1, 4, 2, 0) == pytest.approx(0.004)
    assert costs.probe == ((1, 0.01), (8, 0.02))
    assert {job.spec_tokens for job in arms["none"].jobs} == {None}
    # n-grams cost about the same at any length.
    methods = {(job.spec_method, job.spec_tokens) for job in arms["plugin"].jobs}
    assert methods == {(None, 0), ("ngram", 4), ("draft_model", 1), ("draft_model", 2), ("draft_model", 4)}
