"""What stock vLLM 0.32 does with n-gram drafts on CPU, and the plugin with the same requests.

If these tests fail, vLLM has mended its sampler, and the README's table is to be changed.
"""

import json

import pytest

from tests.engine import texts
from tests.engine.arms import LOOKUP, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.jobs import Job, Request
from tests.engine.samples import Plan, exact_tests, sample

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

STOCK = Engine(
    config=json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5})
)
OURS = Engine(config=LOOKUP)
TOP_K = {"temperature": 1.0, "top_k": 20, "max_tokens": 24, "ignore_eos": True}


def test_at_temperature_1_stock_fails_the_distribution_test(arms: Arms, reference: Reference) -> None:
    """Chi-square tests of 3 positions after 4 prompts. Seed 0, 500 continuations each.

    The plugin passes them in test_sampling.py.
    """
    plan = Plan({"temperature 1": {"temperature": 1.0}}, texts.repetitive(reference), 500)
    samples, _ = sample(arms, STOCK, plan)
    assert min(test.p_value for test in exact_tests(reference, plan.settings, samples).values()) < 1e-9


def test_with_top_k_stock_goes_down_and_the_plugin_answers(arms: Arms, reference: Reference) -> None:
    job = Job([Request(prompt, TOP_K) for prompt in texts.repetitive(reference)])
    assert all(len(tokens) == 24 for tokens in arms.run(OURS, job).tokens())
    with pytest.raises(RuntimeError, match="the engine ended"):
        arms.run(STOCK, job)
