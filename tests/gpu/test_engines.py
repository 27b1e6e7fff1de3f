"""Greedy outputs of all arms are those without speculation, in float32, and drafts were verified."""

import dataclasses
from typing import Any

import pytest

from tests.gpu.arms import ARMS
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.load.workloads import BEGINNINGS
from vllm_spec_tools.bench.records import Job
from vllm_spec_tools.engine_child import EngineError

NUM_TOKENS = 48
DRAFTING = [name for name in ARMS if not name.startswith("none")]


@pytest.fixture
def engine(request: pytest.FixtureRequest, names: list[str], engines: dict[str, Arm | EngineError]) -> Arm:
    if request.param not in names:
        pytest.skip("needs a GPU")
    return ready(engines[request.param])


@pytest.fixture(scope="session")
def expected(engines: dict[str, Arm | EngineError]) -> list[list[int]]:
    return ready(engines["none, V1"]).run(job()).token_ids


def ready(arm: Arm | EngineError) -> Arm:
    if isinstance(arm, EngineError):
        pytest.fail(str(arm), pytrace=False)
    return arm


def job(**given: Any) -> Job:
    prompts = tuple(BEGINNINGS[i % len(BEGINNINGS)] for i in range(8))
    return Job(prompts, given.pop("temperature", 0.0), NUM_TOKENS, 0, **given)


@pytest.mark.parametrize("engine", ["none, V2"], indirect=True)
def test_both_runners_agree(engine: Arm, expected: list[list[int]]) -> None:
    assert engine.run(job()).token_ids == expected


@pytest.mark.parametrize("engine", DRAFTING, indirect=True)
def test_greedy_outputs_are_equal(engine: Arm, expected: list[list[int]], record_property: Any) -> None:
    """Four draft tokens in each step, where the proposer has any; a prediction is given, and there are repetitions."""
    prompts = tuple(prompt + prompt for prompt in job().prompts)
    texts = engine.run(job()), engine.run(dataclasses.replace(job(), prompts=prompts, predictions=prompts))
    record_property("drafts", [text.num_draft_tokens for text in texts])
    record_property("accepted", [text.num_accepted_tokens for text in texts])
    assert texts[0].token_ids == expected
    assert sum(text.num_draft_tokens for text in texts) > 0


@pytest.mark.parametrize("engine", DRAFTING, indirect=True)
def test_nothing_is_drafted_where_drafts_are_off(engine: Arm, expected: list[list[int]]) -> None:
    answer = engine.run(job(spec_tokens=0))
    assert answer.token_ids == expected
    assert answer.num_draft_tokens == 0


@pytest.mark.parametrize("engine", DRAFTING, indirect=True)
def test_sampled_requests_get_all_their_tokens(engine: Arm) -> None:
    answer = engine.run(job(temperature=1.0))
    assert [len(token_ids) for token_ids in answer.token_ids] == [NUM_TOKENS] * 8
