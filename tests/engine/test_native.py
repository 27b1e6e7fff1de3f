"""vLLM's own drafters with the plugin's draft lengths: what vLLM would output, whatever the lengths are."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import Job, Request
from tests.engine.samples import Plan, exact_tests, impossible, sample
from tests.engine.v2.cells import run_greedy
from tests.engine.v2.drafters import DRAFTERS as V2_DRAFTERS
from tests.engine.v2.drafters import bundled_target, mtp_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

K = 4
DRAFTERS = {
    "draft_model": native(STOCK_DRAFT_MODEL),
    "eagle3": native(json.dumps({"method": "eagle3", "model": str(model_path("eagle3"))})),
    "ngram": native(json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})),
}
# Draft lengths at random, none for one request of twenty.
ENGINES = {
    name: Engine(config=DRAFTERS[name], random_lengths=True, **TIGHT)
    for name in (DRAFTERS if is_full() else ["draft_model"])
}
FALSE_ALARMS = 1e-3


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 48, 500)


def request(prompt: Tokens, number: int) -> Request:
    """A third of the requests has no drafts, a third at most two tokens."""
    options: dict[int, dict[str, Any]] = {0: {"spec": "off"}, 1: {"spec_tokens": 2}, 2: {}}
    params = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
    return Request(prompt, params | {"extra_args": options[number % 3]})


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_greedy_outputs_do_not_depend_on_draft_lengths(
    engine: Engine, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Prompts are computed in chunks, beginnings come from the prefix cache, requests are preempted."""
    result = arms.run(engine, Job([request(prompt, i) for i, prompt in enumerate(prompts)]))
    plain = arms.run(Engine(), Job([request(prompt, 0) for prompt in prompts]))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert min(result.accepted, result.rejected) > 50
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    # Between one and K tokens; with K for all it would be K per draft.
    assert drafts < tokens < 0.8 * K * drafts
    name = "vllm_spec_plugin:verified_tokens_total"
    assert sum(count for key, count in result.metrics.items() if key.startswith(name)) == tokens


def test_spec_off_for_all_drafts_nothing(arms: Arms, prompts: list[Tokens]) -> None:
    params = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, "extra_args": {"spec": "off"}}
    result = arms.run(ENGINES["draft_model"], Job([Request(prompt, params) for prompt in prompts[:8]]))
    assert result.accepted + result.rejected == 0


@pytest.mark.statistical
@pytest.mark.parametrize("name", DRAFTERS if is_full() else ["draft_model"])
def test_sampled_output_has_the_exact_distribution(name: str, arms: Arms, reference: Reference, full: bool) -> None:
    """On a CPU, where vLLM's sampler alone is wrong (`test_stock.py`).

    Seed 0. 3 settings, 4 prompts, 3 positions, 250 continuations each (full: 1,000). False-alarm rate of all of this
    file's chi-square tests together: 1e-3.
    """
    settings: dict[str, dict[str, Any]] = {"temperature 1": {}, "top_k": {"top_k": 20}, "top_p": {"top_p": 0.9}}
    plan = Plan(
        {name: {"temperature": 1.0} | params for name, params in settings.items()},
        texts.repetitive(reference),
        1000 if full else 250,
    )
    samples, result = sample(arms, Engine(config=DRAFTERS[name], random_lengths=True), plan)
    assert min(result.accepted, result.rejected) > plan.size
    assert not impossible(reference, plan.settings, samples)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / (len(tests) * len(DRAFTERS))


@pytest.mark.parametrize("name", ["draft_model", "eagle3", "mtp", "ngram_gpu"] if is_full() else ["draft_model"])
def test_on_the_v2_runner_greedy_outputs_do_not_depend_on_draft_lengths(
    name: str, arms: Arms, reference: Reference, tmp_path: Path
) -> None:
    target = mtp_target(tmp_path) if name == "mtp" else bundled_target(reference)
    config = native(json.dumps(V2_DRAFTERS[name]), 3)
    engine = dataclasses.replace(v2_engine(name, target), config=config, random_lengths=True)
    result = run_greedy(arms, engine, target)
    assert min(result.accepted, result.rejected) > 10
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    assert drafts < tokens < 0.9 * 3 * drafts
