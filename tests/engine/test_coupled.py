"""The plugin's verification on vLLM's V2 runner, with the target's noise; `test_exactness.py` has seeded outputs."""

import dataclasses
import json

import pytest

from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.v2.cells import MIN_P, SETTINGS, TRUNCATIONS, run_sampled
from tests.engine.v2.drafters import DRAFTERS, Target, bundled_target, engine
from tests.engine.ways import HEADS, vllms, vllms_on_v2, written
from tests.fixed_length import fixed_length, native

pytestmark = pytest.mark.engine

FALSE_ALARMS = 1e-3
DRAFT_MODEL = vllms_on_v2("draft_model")
# Of drafts with a q, verified by vLLM.
PROBABILISTIC = vllms(json.dumps(DRAFTERS["draft_model_probabilistic"]))
SAMPLED = {
    "coupled": DRAFT_MODEL,
    "block": written(PROBABILISTIC, 3, verification={"method": "block"}),
    "token": written(PROBABILISTIC, 3, verification={"method": "token"}),
    "suffix": fixed_length("suffix", 4),
    "medusa": written(HEADS, 3),
}


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def drafting(target: Target, config: str) -> Engine:
    return dataclasses.replace(engine("draft_model", target), config=config)


def test_drafts_with_the_targets_noise_are_accepted_more_often_than_greedy_ones(arms: Arms, target: Target) -> None:
    """At temperature 1."""
    greedy = native(json.dumps(DRAFTERS["draft_model"] | {"draft_sample_method": "greedy"}), 3)
    job = Job(
        [CertifyRequest(p, {"temperature": 1.0, "max_tokens": 24, "seed": i}) for i, p in enumerate(target.prompts)]
    )

    def share(result: JobResult) -> float:
        return result.accepted / (result.accepted + result.rejected)

    ours, likeliest = (arms.run(drafting(target, each), job) for each in (DRAFT_MODEL, greedy))
    assert ours.tokens() == likeliest.tokens()
    assert share(ours) > share(likeliest) + 0.05


@pytest.mark.full
@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLED)
def test_outputs_without_seeds_have_the_exact_distribution(name: str, arms: Arms, target: Target) -> None:
    """Seed 0. 3 settings (6 with vLLM's draft model), 8 prompts, 2 outputs of 24 tokens each.

    False-alarm rate of vLLM's draft model with all methods together, and of each other proposer: 1e-3.
    """
    is_model = name in ("coupled", "block", "token")
    settings = SETTINGS | (TRUNCATIONS | MIN_P if is_model else {})
    sampling = dataclasses.replace(drafting(target, SAMPLED[name]), random_lengths=True)
    result, tests = run_sampled(arms, sampling, target, settings, 2)
    assert min(result.accepted, result.rejected) > 30
    threshold = FALSE_ALARMS / (len(tests) * (3 if is_model else 1))
    assert min(test.p_value for test in tests.values()) > threshold
