"""Sampled outputs with a grammar have the target's distribution over what the grammar allows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.engine import chi_square, texts
from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.samples import NUM_POSITIONS, Plan, by_prefix, sample
from tests.fixed_length import distant, native

pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

FALSE_ALARMS = 1e-3
LETTERS = "[a-z_]"
GRAMMAR: dict[str, Any] = {"structured_outputs": {"regex": LETTERS + "{300}"}}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """vLLM's draft model, sampled, far from the target: most of its drafts begin with a token that is not allowed."""
    model = yaml.safe_load(Path(distant()).read_text())["proposer"]["model"]
    drafter = {"method": "draft_model", "model": model, "draft_sample_method": "probabilistic"}
    return Engine(config=native(json.dumps(drafter), 3))


def test_a_grammar_that_cuts_sampled_drafts_does_not_bias_outputs(
    engine: Engine, arms: Arms, reference: Reference
) -> None:
    """Letters only, so that each token is allowed or not wherever it stands.

    Seed 0. 4 prompts, 500 continuations each, 3 tokens. False-alarm rate of all chi-square tests together: 1e-3. With
    drafts the least of the 12 p-values was 7e-7.
    """
    plan = Plan({"letters": {"temperature": 1.0} | GRAMMAR}, texts.repetitive(reference), 500)
    samples, result = sample(arms, engine, plan)
    allowed = torch.tensor(
        [bool(re.fullmatch(LETTERS + "+", reference.tokenizer.decode([i]))) for i in range(len(reference.tokenizer))]
    )
    p_values = []
    for (_, prompt), continuations in samples.items():
        for position in range(NUM_POSITIONS):
            counts = by_prefix(continuations, position)
            logits = reference.logits_after(prompt, list(counts)).double().masked_fill(~allowed, -torch.inf)
            p_values.append(chi_square.against_probabilities(counts, logits.softmax(-1).numpy()).p_value)
    assert min(p_values) > FALSE_ALARMS / len(p_values)
    without = "vllm_spec_plugin:requests_without_drafts_total{reason=grammar}"
    assert result.metrics[without] == plan.size * len(plan.prompts)


def test_greedy_requests_with_a_grammar_keep_their_drafts(engine: Engine, arms: Arms, reference: Reference) -> None:
    params = {"temperature": 0.0, "max_tokens": 40} | GRAMMAR
    job = Job([CertifyRequest(prompt, params) for prompt in texts.repetitive(reference)])
    result = arms.run(engine, job)
    assert result.tokens() == arms.run(Engine(), job).tokens()
    assert min(result.accepted, result.rejected) > 5
