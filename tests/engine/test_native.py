"""vLLM's drafters, alone and after texts; texts and heads on its V2 runner: outputs are those without drafts."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import texts
from tests.engine.arms import PREDICTION, TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.samples import Plan, exact_tests, impossible, sample
from tests.engine.v2.cells import SETTINGS, run_greedy, run_sampled
from tests.engine.v2.drafters import DRAFTERS as V2_DRAFTERS
from tests.engine.v2.drafters import Target, bundled_target, mtp_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL, fixed_length, native
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

K = 4
FALSE_ALARMS = 1e-3
EAGLE3 = json.dumps({"method": "eagle3", "model": str(model_path("eagle3"))})
NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})
DRAFTERS = {"draft_model": native(STOCK_DRAFT_MODEL, K), "eagle3": native(EAGLE3, K), "ngram": native(NGRAM, K)}
AFTER_TEXTS = "after texts"


def written(proposer: dict[str, Any], tokens: int, **sections: Any) -> str:
    """Path of a file with that proposer and draft length, and further sections."""
    path = Path(tempfile.mkdtemp(prefix="native-")) / "plugin.yaml"
    data = {"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": tokens}, **sections}
    path.write_text(yaml.safe_dump(data))
    return str(path)


def after_texts(last: dict[str, Any], tokens: int = K) -> str:
    """Path of a file that drafts from predictions and texts before that proposer."""
    members: list[dict[str, Any]] = [{"method": "prediction"}, {"method": "suffix", "min_order": 4}]
    return written({"method": "cascade", "proposers": [*members, last]}, tokens)


def vllms(drafter: str) -> dict[str, Any]:
    """One of vLLM's drafters as a proposer."""
    return {"method": "vllm", "config": json.loads(drafter)}


def on_v2(name: str) -> str:
    """Path of a file with one of V2's drafters, three tokens a draft."""
    return native(json.dumps(V2_DRAFTERS[name]), 3)


V1 = {"draft_model": DRAFTERS["draft_model"], f"eagle3 {AFTER_TEXTS}": after_texts(vllms(EAGLE3))}
SAMPLED = {"draft_model": DRAFTERS["draft_model"]}
MEDUSA = {"method": "medusa", "model": str(model_path("medusa"))}
V2 = {"draft_model": on_v2("draft_model"), "suffix": fixed_length("suffix", K), "medusa": written(MEDUSA, 3)}
if is_full():
    V1 |= DRAFTERS | {f"draft_model {AFTER_TEXTS}": after_texts(vllms(STOCK_DRAFT_MODEL))}
    SAMPLED = V1
    V2 |= {name: on_v2(name) for name in ("eagle3", "mtp", "ngram_gpu")}
    V2 |= {"ngram": fixed_length("ngram", K), f"eagle3 {AFTER_TEXTS}": after_texts(vllms(EAGLE3))}
    V2 |= {f"medusa {AFTER_TEXTS}": after_texts(MEDUSA, 3)}


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 48, 500)


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def request(prompt: Tokens, number: int) -> CertifyRequest:
    """A third of the requests has no drafts, a third at most two tokens."""
    options: dict[int, dict[str, Any]] = {0: {"spec": "off"}, 1: {"spec_tokens": 2}, 2: {}}
    params = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
    return CertifyRequest(prompt, params | {"extra_args": options[number % 3]})


def assert_all_drafted(result: JobResult, least: int) -> None:
    """Texts and the drafter after them both made more than `least` drafts."""
    token_only = len(result.notes["drafted in the scheduler"])
    assert min(token_only, result.metrics["vllm:spec_decode_num_drafts"] - token_only) > least


def assert_lengths_vary(result: JobResult, most: float) -> None:
    """Drafts have between one and `most` tokens on average, and all of them were counted by length."""
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    assert drafts < tokens < most * drafts
    name = "vllm_spec_plugin:verified_tokens_total"
    assert sum(count for key, count in result.metrics.items() if key.startswith(name)) == tokens


@pytest.mark.parametrize("name", V1)
def test_greedy_outputs_do_not_depend_on_draft_lengths(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Lengths are random, and so is the order after texts; chunked prompts, prefix-cache hits, preemption."""
    engine = Engine(config=V1[name], random_lengths=True, **TIGHT)
    result = arms.run(engine, Job([request(prompt, i) for i, prompt in enumerate(prompts)]))
    plain = arms.run(Engine(), Job([request(prompt, 0) for prompt in prompts]))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert min(result.accepted, result.rejected) > 50
    if AFTER_TEXTS in name:
        assert_all_drafted(result, 30)
    else:
        assert_lengths_vary(result, 0.8 * K)


def test_spec_off_for_all_drafts_nothing(arms: Arms, prompts: list[Tokens]) -> None:
    params = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, "extra_args": {"spec": "off"}}
    engine = Engine(config=V1["draft_model"], random_lengths=True, **TIGHT)
    result = arms.run(engine, Job([CertifyRequest(prompt, params) for prompt in prompts[:8]]))
    assert result.accepted + result.rejected == 0


@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_output_has_the_exact_distribution(name: str, arms: Arms, reference: Reference, full: bool) -> None:
    """On a CPU, where vLLM's sampler alone is wrong (`test_stock.py`).

    Seed 0. 3 settings, 4 prompts, 3 positions, 250 continuations each (full: 1,000). False-alarm rate of all of this
    test's chi-square tests together: 1e-3.
    """
    settings: dict[str, dict[str, Any]] = {"temperature 1": {}, "top_k": {"top_k": 20}, "top_p": {"top_p": 0.9}}
    plan = Plan(
        {name: {"temperature": 1.0} | params for name, params in settings.items()},
        texts.repetitive(reference),
        1000 if full else 250,
    )
    samples, result = sample(arms, Engine(config=SAMPLED[name], random_lengths=True), plan)
    assert min(result.accepted, result.rejected) > plan.size
    assert not impossible(reference, plan.settings, samples)
    tests = exact_tests(reference, plan.settings, samples)
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / (len(tests) * len(SAMPLED))


def test_seeded_outputs_do_not_depend_on_how_prompts_are_cut(arms: Arms, prompts: list[Tokens]) -> None:
    """Without drafts, on a CPU, where vLLM's runner alone raises for a request with a seed and a prompt in chunks."""
    options = {"temperature": 1.0, "max_tokens": 8, "ignore_eos": True, "extra_args": {"spec": "off"}}
    job = Job([CertifyRequest(prompt, options | {"seed": i}) for i, prompt in enumerate(prompts[:8])])
    cut = arms.run(Engine(config=V1["draft_model"], random_lengths=True, **TIGHT), job)
    assert cut.tokens() == arms.run(Engine(), job).tokens()


@pytest.mark.parametrize("name", V2)
def test_on_the_v2_runner_greedy_outputs_do_not_depend_on_draft_lengths(
    name: str, arms: Arms, target: Target, tmp_path: Path
) -> None:
    """Lengths by request and step; prompts are computed in chunks."""
    asked = mtp_target(tmp_path) if name == "mtp" else target
    drafter = name if name in V2_DRAFTERS else "none"
    engine = dataclasses.replace(v2_engine(drafter, asked), config=V2[name], random_lengths=True)
    result = run_greedy(arms, engine, asked)
    if AFTER_TEXTS in name:
        assert_all_drafted(result, 5)
    else:
        assert min(result.accepted, result.rejected) > 10
        assert_lengths_vary(result, 4 if drafter == "none" else 0.9 * 3)


@pytest.mark.full  # The sampler is vLLM's, which test_v2.py tests.
@pytest.mark.statistical
@pytest.mark.parametrize("name", ["suffix", "medusa"])
def test_on_the_v2_runner_sampled_output_has_the_exact_distribution(name: str, target: Target, arms: Arms) -> None:
    """Seed 0. 3 settings, 8 prompts, 2 outputs of 24 tokens each. False-alarm rate: 1e-3."""
    engine = dataclasses.replace(v2_engine("none", target), config=V2[name], random_lengths=True)
    result, tests = run_sampled(arms, engine, target, SETTINGS, 2)
    assert min(result.accepted, result.rejected) > 30
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)


@pytest.mark.full  # What it shows is tested without engines.
def test_on_the_v2_runner_predictions_json_and_spec_off_go_side_by_side(target: Target, arms: Arms) -> None:
    """Serves each prompt with a right and a wrong prediction, with none, and as JSON, whose drafts a grammar cuts."""
    usual = {"temperature": 0.0, "max_tokens": 32, "ignore_eos": True}
    plain = v2_engine("none", target)
    answers = arms.run(plain, Job([CertifyRequest(prompt, usual) for prompt in target.prompts])).tokens()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    requests, without = [], []
    for prompt, answer in zip(target.prompts, answers, strict=True):
        in_json = CertifyRequest(prompt, usual | {"max_tokens": 24, "structured_outputs": {"json": schema}})
        options = ({"spec_prediction": answer}, {"spec_prediction": [*answer[:9], *answer]}, {"spec": "off"})
        requests += [*(CertifyRequest(prompt, usual | {"extra_args": each}) for each in options), in_json]
        without += [*[CertifyRequest(prompt, usual)] * len(options), in_json]
    result = arms.run(dataclasses.replace(plain, config=PREDICTION), Job(requests))
    assert result.tokens() == arms.run(plain, Job(without)).tokens()
    assert (result.accepted > 100, result.rejected > 3) == (True, True)
