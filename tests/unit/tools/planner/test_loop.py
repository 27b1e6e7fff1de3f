"""The traffic in a closed loop."""

import pytest

from vllm_spec_plugin.tools.planner.loop import load_job
from vllm_spec_plugin.tools.planner.traffic import Prompt

PROMPTS = [Prompt(f"text {number}", "edit", 0.0, 20) for number in range(3)]


def test_every_prompt_comes_before_one_comes_again_and_lengths_differ() -> None:
    job = load_job(PROMPTS, 2, 0, 0, 4)
    requests = job.phases[0].requests
    assert {request.prompt for request in requests[:3]} == {prompt.text for prompt in PROMPTS}
    lengths = {request.num_tokens for request in requests}
    assert len(lengths) > 3
    assert min(lengths) >= 10
    assert max(lengths) <= 30
    mean = sum(request.num_tokens for request in requests) / len(requests)
    assert job.phases[0].num_tokens == pytest.approx(2 * 4 * mean, abs=1)


def test_requests_have_the_predictions_of_their_prompts() -> None:
    prompts = [Prompt("a", "edit", 0.0, 20, "b"), Prompt("c", "edit", 0.0, 20)]
    requests = load_job(prompts, 2, 0, 0, 4).phases[0].requests
    assert {(request.prompt, request.prediction) for request in requests} == {("a", "b"), ("c", "")}
