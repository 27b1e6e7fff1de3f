"""Shows faults of stock vLLM on its V1 runner, and the plugin with the same requests.

If these tests fail, vLLM has mended its sampler, and docs/comparison.md is to be changed.
"""

import json

import pytest

from tests.engine import texts
from tests.engine.arms import LOOKUP, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.samples import Plan, exact_tests, sample
from vllm_spec_plugin.models import model_path

# It changes with vLLM's version only.
pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

STOCK = Engine(
    config=json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5})
)
OURS = Engine(config=LOOKUP)
DRAFT_MODEL = {"method": "draft_model", "model": str(model_path("draft"))}
GREEDY = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
TOP_K = {"temperature": 1.0, "top_k": 20, "max_tokens": 24, "ignore_eos": True}


def test_at_temperature_1_stock_fails_the_distribution_test(arms: Arms, reference: Reference) -> None:
    """Chi-square tests of 3 positions after 4 prompts. Seed 0, 500 continuations each.

    The plugin passes them in test_sampling.py.
    """
    plan = Plan({"temperature 1": {"temperature": 1.0}}, texts.repetitive(reference), 500)
    samples, _ = sample(arms, STOCK, plan)
    assert min(test.p_value for test in exact_tests(reference, plan.settings, samples).values()) < 1e-9


def test_with_top_k_stock_goes_down_and_the_plugin_answers(arms: Arms, reference: Reference) -> None:
    job = Job([CertifyRequest(prompt, TOP_K) for prompt in texts.repetitive(reference)])
    assert all(len(tokens) == 24 for tokens in arms.run(OURS, job).tokens())
    with pytest.raises(RuntimeError, match="the engine ended"):
        arms.run(STOCK, job)


def test_after_accepted_drafts_stock_holds_a_stop_token_back_though_min_tokens_are_there(
    arms: Arms, reference: Reference
) -> None:
    """Not on CPUs alone: V1's sampler looks at the output before the step. With the plugin: test_exactness.py."""
    prompts = texts.repetitive(reference)
    plain = arms.run(Engine(), Job([CertifyRequest(prompt, GREEDY) for prompt in prompts])).tokens()
    # The stop token is the second after `min_tokens`, and comes at no other place before.
    cases = [
        (prompt, least, tokens[least + 1])
        for prompt, tokens in zip(prompts, plain, strict=True)
        for least in range(2, 20)
        if tokens[least + 1] not in tokens[least : least + 1]
    ]
    requests = [
        CertifyRequest(prompt, GREEDY | {"min_tokens": n, "stop_token_ids": [stop]}) for prompt, n, stop in cases
    ]
    stock = arms.run(Engine(config=json.dumps({**DRAFT_MODEL, "num_speculative_tokens": 4})), Job(requests))
    lengths = [len(tokens) for tokens in arms.run(Engine(), Job(requests)).tokens()]
    assert [len(tokens) for tokens in stock.tokens()] != lengths
