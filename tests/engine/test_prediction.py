"""Predicted outputs under memory pressure and on two tensor-parallel ranks leave outputs as they are."""

import os
from collections.abc import Sequence

import pytest

from tests.engine import texts
from tests.engine.arms import PREDICTION, TIGHT, TWO_RANKS, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job
from vllm_spec_plugin.metrics.counters import RANKS_DIFFER

pytestmark = pytest.mark.engine

NUM_PROMPTS, LONGEST, NUM_TOKENS = 48, 400, 64
# A predicted token in so many is not that of the output.
CHANGED = 12
DIFFER = f"vllm_spec_plugin:proposer_errors_total{{reason={RANKS_DIFFER}}}"


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, NUM_PROMPTS, LONGEST)


def predicted(plain: Job, outputs: Sequence[list[int]]) -> Job:
    """The requests of `plain`: a third predict their outputs with changes, a third another's, the others nothing."""
    requests = []
    for i, (request, output) in enumerate(zip(plain.requests, outputs, strict=True)):
        changed = [token if (at + i) % CHANGED else output[0] for at, token in enumerate(output)]
        prediction = (changed, outputs[i - 1], None)[i % 3]
        extra = {} if prediction is None else {"extra_args": {"spec_prediction": prediction}}
        requests.append(CertifyRequest(request.prompt, request.params | extra))
    return Job(requests)


def check(arms: Arms, reference: Reference, prompts: list[Tokens], engine: Engine) -> None:
    """Greedy and seeded outputs are those without predictions, and predictions are drafted from."""
    greedy = greedy_job(prompts, NUM_TOKENS)
    plain = arms.run(Engine(), greedy)
    result = arms.run(engine, predicted(greedy, plain.tokens()))
    assert_same_tokens(reference, prompts, result, plain)
    assert result.preemptions > 0
    assert result.accepted > len(prompts) // 3 * NUM_TOKENS // 2
    assert result.rejected > 100
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    params = {"temperature": 1.0, "max_tokens": 32, "ignore_eos": True}
    # From 1000: with seed 26 two tokens are within 3e-6 of each other, and two ranks round otherwise than one.
    seeded = Job([CertifyRequest(prompt, {**params, "seed": 1000 + i}) for i, prompt in enumerate(prompts)])
    off = [
        CertifyRequest(request.prompt, request.params | {"extra_args": {"spec": "off"}}) for request in seeded.requests
    ]
    without = arms.run(Engine(config=PREDICTION), Job(off))
    assert without.accepted + without.rejected == 0
    result = arms.run(engine, predicted(seeded, without.tokens()))
    assert result.tokens() == without.tokens()
    assert result.accepted > len(prompts) // 3 * 16
    assert not result.metrics[DIFFER]


def test_predicted_outputs_survive_chunked_prompts_and_preemption(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    check(arms, reference, prompts, Engine(config=PREDICTION, check=True, **TIGHT))


@pytest.mark.whole_machine
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
@pytest.mark.full  # test_parallel.py has other proposers on two ranks.
def test_two_ranks_draft_alike_from_predictions(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    check(arms, reference, prompts, Engine(config=PREDICTION, check=True, options=TWO_RANKS, **TIGHT))
