"""The plugin's verification on vLLM's V2 runner: a seeded output is that without speculation, whatever drafts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.arms import TWO_RANKS, Arms
from tests.engine.exact import Reference
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.test_native import AFTER_TEXTS, FALSE_ALARMS, MEDUSA, V2, after_texts, vllms, written
from tests.engine.v2.cells import MIN_P, SETTINGS, TRUNCATIONS, run_sampled
from tests.engine.v2.drafters import DRAFTERS, Target, bundled_target, mtp_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL, fixed_length, native
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.certify.baseline import SCHEMA
from vllm_spec_tools.certify.coupled import Comparison, compare

pytestmark = pytest.mark.engine

NUM_TOKENS = 16
# Without an environment variable.
OWN = "own draft_model"
NAMES = [OWN, "suffix", "medusa"]
MIXED, OWN_MIXED = f"draft_model {AFTER_TEXTS}", f"{OWN} {AFTER_TEXTS}"
OWN_DRAFT = {"method": "draft_model", "model": str(model_path("draft"))}
CONFIGS = V2 | {MIXED: after_texts(vllms(STOCK_DRAFT_MODEL), 3), OWN_MIXED: after_texts(OWN_DRAFT, 3)}
CONFIGS[OWN] = fixed_length("draft_model", 3)
if is_full():
    NAMES += ["draft_model", "eagle3", "mtp", MIXED, OWN_MIXED, f"medusa {AFTER_TEXTS}"]
PARAMS: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 1.0, "logit_bias": {17: 5.0, 40: -5.0}},
    {"temperature": 0.7, "repetition_penalty": 1.3, "presence_penalty": 0.2},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 0.5},
    {"temperature": 0.0},
)


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def seeded(target: Target) -> Job:
    """Each prompt with other parameters."""
    usual = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "detokenize": False, "logprobs": 2}
    return Job(
        [
            CertifyRequest(prompt, usual | PARAMS[i % len(PARAMS)] | {"seed": 1000 + i})
            for i, prompt in enumerate(target.prompts)
        ]
    )


def share(result: JobResult) -> float:
    """The accepted share of draft tokens."""
    return result.accepted / (result.accepted + result.rejected)


def compared(result: JobResult, plain: JobResult) -> Comparison:
    """Compares the outputs as `certify` does."""
    return compare([output for [output] in result.outputs], [output for [output] in plain.outputs])


def assert_same_logprobs(result: JobResult, plain: JobResult) -> None:
    for [ours], [theirs] in zip(result.outputs, plain.outputs, strict=True):
        rows = zip(ours.logprobs or [], theirs.logprobs or [], strict=True)
        assert all(one == pytest.approx(other, abs=1e-3) for one, other in rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_output_is_that_without_speculation(name: str, arms: Arms, target: Target, tmp_path: Path) -> None:
    """Also with the parameters that vLLM refuses beside speculation; logprobs have a tolerance of 1e-3."""
    asked = mtp_target(tmp_path) if name == "mtp" else target
    engine = v2_engine(name if name in DRAFTERS else "none", asked)
    job = seeded(asked)
    runner = "default" if OWN in name else "v2"
    result = arms.run(dataclasses.replace(engine, config=CONFIGS[name], random_lengths=True, runner=runner), job)
    plain = arms.run(dataclasses.replace(engine, config=""), job)
    assert result.tokens() == plain.tokens()
    assert min(result.accepted, result.rejected) > 5
    assert_same_logprobs(result, plain)
    assert not compared(result, plain).is_wrong(1e-3, 1e-4)


# Requests of other kinds: several outputs, bad words, a grammar, an end in the text; some prompts come twice.
KINDS: tuple[dict[str, Any], ...] = (
    {"n": 3, "ignore_eos": True},
    {"bad_words": ["self", " =", "("], "ignore_eos": True},
    {"structured_outputs": {"json": SCHEMA}, "max_tokens": 60},
    {"stop": ["\n\n", "return"], "min_tokens": 4, "top_p": 0.95},
)
LAYOUTS: dict[str, dict[str, Any]] = {
    # Prompts are computed in chunks, and requests are preempted.
    "few blocks": {"max_num_seqs": 12, "max_num_batched_tokens": 96, "num_blocks": 12, "max_model_len": 320},
    "two ranks": {"options": TWO_RANKS},
}
TWO = pytest.mark.whole_machine


@pytest.mark.full
@pytest.mark.parametrize("num_tokens", [1, 4])
@pytest.mark.parametrize("name", [OWN, "suffix", f"medusa {AFTER_TEXTS}"])
@pytest.mark.parametrize("layout", ["few blocks", pytest.param("two ranks", marks=TWO)])
def test_so_is_that_of_any_request_in_any_layout(
    name: str, num_tokens: int, layout: str, arms: Arms, target: Target
) -> None:
    configs = {
        OWN: fixed_length("draft_model", num_tokens),
        "suffix": fixed_length("suffix", num_tokens),
        f"medusa {AFTER_TEXTS}": after_texts(MEDUSA, min(num_tokens, 3)),
    }
    prompts = [*target.prompts, *target.prompts[:4]]
    usual = {"temperature": 1.0, "max_tokens": 24}
    job = Job([CertifyRequest(p, usual | KINDS[i % len(KINDS)] | {"seed": 50 + i}) for i, p in enumerate(prompts)])
    plain = dataclasses.replace(v2_engine("none", target), **LAYOUTS[layout])
    engine = dataclasses.replace(plain, config=configs[name], random_lengths=True, runner="default")
    result, expected = arms.run(engine, job), arms.run(plain, job)
    for ours, theirs in zip(result.outputs, expected.outputs, strict=True):
        assert [output.token_ids for output in ours] == [output.token_ids for output in theirs]
    assert min(result.accepted, result.rejected) > 5
    assert layout != "few blocks" or result.preemptions > 0


def test_drafts_with_the_targets_noise_are_accepted_more_often_than_greedy_ones(arms: Arms, target: Target) -> None:
    """At temperature 1."""
    greedy = native(json.dumps(DRAFTERS["draft_model"] | {"draft_sample_method": "greedy"}), 3)
    job = Job(
        [CertifyRequest(p, {"temperature": 1.0, "max_tokens": 24, "seed": i}) for i, p in enumerate(target.prompts)]
    )
    engine = v2_engine("draft_model", target)
    ours, likeliest = (arms.run(dataclasses.replace(engine, config=each), job) for each in (V2["draft_model"], greedy))
    assert ours.tokens() == likeliest.tokens()
    assert share(ours) > share(likeliest) + 0.05


def verified_by(method: str) -> str:
    """Path of a file with V2's draft model, whose drafts have a q, and that verification."""
    config = DRAFTERS["draft_model_probabilistic"]
    return written(vllms(json.dumps(config)), 3, verification={"method": method})


@pytest.mark.full
@pytest.mark.statistical
@pytest.mark.parametrize("method", ["coupled", "block", "token"])
def test_outputs_without_seeds_have_the_exact_distribution(method: str, arms: Arms, target: Target) -> None:
    """Seed 0. 6 settings, 8 prompts, 2 outputs of 24 tokens each. False-alarm rate of all methods together: 1e-3."""
    config = V2["draft_model"] if method == "coupled" else verified_by(method)
    engine = dataclasses.replace(v2_engine("draft_model", target), config=config, random_lengths=True)
    settings = SETTINGS | TRUNCATIONS | MIN_P
    result, tests = run_sampled(arms, engine, target, settings, 2)
    assert min(result.accepted, result.rejected) > 50
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / (3 * len(tests))


@pytest.mark.full
def test_certify_notices_noise_of_another_position(arms: Arms, target: Target) -> None:
    engine = v2_engine("draft_model", target)
    job = dataclasses.replace(seeded(target), sabotage="noise_of_the_next_position")
    result = arms.run(dataclasses.replace(engine, config=V2["draft_model"]), job)
    plain = arms.run(dataclasses.replace(engine, config=""), seeded(target))
    found = compared(result, plain)
    assert found.is_wrong(1e-3, 1e-4)
    assert found.p_value < 1e-6
