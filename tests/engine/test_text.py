"""Drafts from texts on vLLM's V2 runner: the scheduler drafts, vLLM verifies, outputs are those without drafts."""

import dataclasses
from typing import Any

import pytest

from tests.engine.arms import PREDICTION, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.jobs import Job, Request
from tests.engine.v2.cells import SETTINGS, run_greedy, run_sampled
from tests.engine.v2.drafters import Target, bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import fixed_length
from tests.sizes import is_full

pytestmark = pytest.mark.engine

FALSE_ALARMS = 1e-3


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def engine(name: str, target: Target, **options: Any) -> Engine:
    """An engine with the text proposer of a shipped configuration, 4 draft tokens."""
    return dataclasses.replace(v2_engine("none", target), config=fixed_length(name), **options)


@pytest.mark.parametrize("name", ["suffix", "ngram"] if is_full() else ["suffix"])
def test_greedy_outputs_do_not_depend_on_draft_lengths(name: str, target: Target, arms: Arms) -> None:
    """Lengths from 0 to 4 by request and step; prompts are computed in chunks."""
    result = run_greedy(arms, engine(name, target, random_lengths=True), target)
    assert min(result.accepted, result.rejected) > 30
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    assert drafts < tokens < 4 * drafts
    name = "vllm_spec_plugin:verified_tokens_total"
    assert sum(count for key, count in result.metrics.items() if key.startswith(name)) == tokens


@pytest.mark.full  # The sampler is vLLM's, which test_v2.py tests.
def test_sampled_output_has_the_exact_distribution(target: Target, arms: Arms) -> None:
    """Seed 0. 3 settings, 8 prompts, 2 outputs of 24 tokens each. False-alarm rate: 1e-3."""
    result, tests = run_sampled(arms, engine("suffix", target, random_lengths=True), target, SETTINGS, 2)
    assert min(result.accepted, result.rejected) > 30
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)


@pytest.mark.full  # What it shows is tested without engines.
def test_predictions_json_and_spec_off_side_by_side(target: Target, arms: Arms) -> None:
    """Of each prompt: drafts of a right and of a wrong prediction, none, and JSON, whose drafts a grammar cuts."""
    usual = {"temperature": 0.0, "max_tokens": 32, "ignore_eos": True}
    plain = v2_engine("none", target)
    answers = arms.run(plain, Job([Request(prompt, usual) for prompt in target.prompts])).tokens()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    requests = []
    for prompt, answer in zip(target.prompts, answers, strict=True):
        for options in ({"spec_prediction": answer}, {"spec_prediction": [*answer[:9], *answer]}, {"spec": "off"}):
            requests.append(Request(prompt, usual | {"extra_args": options}))
        requests.append(Request(prompt, usual | {"max_tokens": 24, "structured_outputs": {"json": schema}}))
    result = arms.run(dataclasses.replace(plain, config=PREDICTION), Job(requests))
    without = arms.run(plain, Job([dataclasses.replace(each, params=_without(each.params)) for each in requests]))
    assert result.tokens() == without.tokens()
    assert (result.accepted > 100, result.rejected > 3) == (True, True)


def _without(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != "extra_args"}
