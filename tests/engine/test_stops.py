"""Tests that a stop inside accepted drafts leaves nothing of the tokens after it, in the text or in the cache."""

import pytest

from tests.engine import texts
from tests.engine.arms import DRAFT_MODEL, MEDUSA_TREE, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job
from tests.sizes import is_full

pytestmark = pytest.mark.engine


CONFIGS = {"medusa_tree": MEDUSA_TREE} | ({"draft_model": DRAFT_MODEL} if is_full() else {})


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_what_follows_a_stop_is_gone(config: str, arms: Arms, reference: Reference) -> None:
    """Stops at every token of the answers; later requests go on from the stopped texts in the prefix cache.

    Their logprobs are those of an engine without speculation, up to rounding.
    """
    engine, prompts = Engine(config=config), texts.repetitive(reference)
    requests = []
    for prompt, answer in zip(prompts, arms.run(Engine(), greedy_job(prompts, 48)).tokens(), strict=True):
        for i in range(2, 48):
            params = {"temperature": 0.0, "max_tokens": 64, "stop_token_ids": [answer[i]]}
            requests.append(CertifyRequest(prompt, params))
            if i % 3 == 0:
                # Begins and ends within tokens.
                text = reference.tokenizer.decode(answer[i : i + 3])
                requests.append(
                    CertifyRequest(prompt, {"temperature": 0.0, "max_tokens": 64, "stop": [text[1:-1] or text]})
                )
    result, plain = (arms.run(one, Job(requests)) for one in (engine, Engine()))
    for (output,), (expected,) in zip(result.outputs, plain.outputs, strict=True):
        assert output == expected
    num_tokens = sum(map(len, plain.tokens()))
    sampled = result.accepted + result.metrics["vllm:spec_decode_num_drafts"] + len(requests)
    assert sampled > num_tokens + 50, "hardly any stop is inside accepted drafts"
    params = {"temperature": 0.0, "max_tokens": 4, "ignore_eos": True, "logprobs": 1}
    later = [
        CertifyRequest((*request.prompt, *tokens, *request.prompt[:40]), params)
        for request, tokens in zip(requests, plain.tokens(), strict=True)
    ]
    result, plain = (arms.run(one, Job(later)) for one in (engine, Engine()))
    assert result.metrics["vllm:prefix_cache_hits"] > len(later) * min(map(len, prompts)) // 2
    assert_same_tokens(reference, [request.prompt for request in later], result, plain)
    for (output,), (expected,) in zip(result.outputs, plain.outputs, strict=True):
        if output.token_ids == expected.token_ids:
            assert output.logprobs is not None
            assert expected.logprobs is not None
            for ours, theirs in zip(output.logprobs, expected.logprobs, strict=True):
                assert ours == pytest.approx(theirs, abs=1e-3)
