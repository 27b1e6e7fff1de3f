"""Texts before one of vLLM's drafters: outputs are those without drafts, on both runners."""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import texts
from tests.engine.arms import TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import Job
from tests.engine.samples import Plan, exact_tests, impossible, sample
from tests.engine.test_native import request
from tests.engine.v2.cells import run_greedy
from tests.engine.v2.drafters import bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

K = 4
EAGLE3 = json.dumps({"method": "eagle3", "model": str(model_path("eagle3"))})
DRAFTERS = {"eagle3": EAGLE3} | ({"draft_model": STOCK_DRAFT_MODEL} if is_full() else {})
FALSE_ALARMS = 1e-3


@functools.cache
def mixed(drafter: str) -> str:
    """Path of a file that drafts from predictions and texts first."""
    members: list[dict[str, Any]] = [{"method": "prediction"}, {"method": "suffix", "min_order": 4}]
    proposer = {"method": "cascade", "proposers": [*members, {"method": "vllm", "config": json.loads(drafter)}]}
    path = Path(tempfile.mkdtemp(prefix="mixed-")) / "plugin.yaml"
    path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": K}}))
    return str(path)


def drafts_by_texts_and_drafter(metrics: dict[str, float]) -> tuple[float, float]:
    """Returns the numbers of drafts from texts and of others."""
    by_texts = metrics["vllm_spec_plugin:drafts_total"]
    return by_texts, metrics["vllm:spec_decode_num_drafts"] - by_texts


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_outputs_do_not_depend_on_who_drafts(name: str, arms: Arms, reference: Reference) -> None:
    """Draft lengths and the order of proposers are random; chunked prompts, prefix-cache hits, preemption."""
    prompts: list[Tokens] = texts.sources(reference, 48, 500)
    engine = Engine(config=mixed(DRAFTERS[name]), random_lengths=True, **TIGHT)
    result = arms.run(engine, Job([request(prompt, i) for i, prompt in enumerate(prompts)]))
    plain = arms.run(Engine(), Job([request(prompt, 0) for prompt in prompts]))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert min(drafts_by_texts_and_drafter(result.metrics)) > 30
    assert min(result.accepted, result.rejected) > 50


@pytest.mark.statistical
@pytest.mark.full  # The sampler is vLLM's, which test_native.py tests.
def test_sampled_output_has_the_exact_distribution(arms: Arms, reference: Reference) -> None:
    """Seed 0. 2 settings, 4 prompts, 3 positions, 1,000 continuations each. False-alarm rate: 1e-3."""
    settings: dict[str, dict[str, Any]] = {"temperature 1": {}, "top_k": {"top_k": 20}}
    plan = Plan(
        {name: {"temperature": 1.0} | params for name, params in settings.items()}, texts.repetitive(reference), 1000
    )
    samples, result = sample(arms, Engine(config=mixed(EAGLE3), random_lengths=True), plan)
    assert min(result.accepted, result.rejected) > plan.size
    assert not impossible(reference, plan.settings, samples)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)


@pytest.mark.full  # test_text.py has the same worker.
def test_on_the_v2_runner_greedy_outputs_do_not_depend_on_who_drafts(arms: Arms, reference: Reference) -> None:
    target = bundled_target(reference)
    engine = dataclasses.replace(v2_engine("none", target), config=mixed(EAGLE3), random_lengths=True)
    result = run_greedy(arms, engine, target)
    assert min(drafts_by_texts_and_drafter(result.metrics)) > 5
