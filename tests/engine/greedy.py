"""Comparing outputs with those without drafts."""

import math
from collections.abc import Sequence

import pytest

from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from vllm_spec_tools.certify.greedy import TOLERANCES
from vllm_spec_tools.certify.target_probabilities import adjusted


def assert_most_likely(
    reference: Reference,
    prompts: Sequence[Tokens],
    outputs: Sequence[list[int]],
    tolerance: float = TOLERANCES["float32"],
) -> None:
    """Every token is the target's most likely one, up to rounding."""
    for prompt, output in zip(prompts, outputs, strict=True):
        logits = reference.logits([*prompt, *output])[len(prompt) - 1 : -1]
        short_of_best = logits.max(-1).values - logits[range(len(output)), output]
        assert float(short_of_best.max()) < tolerance


def greedy_job(prompts: Sequence[Tokens], num_tokens: int, fault: str = "") -> Job:
    """All prompts, `num_tokens` each."""
    params = {"temperature": 0.0, "max_tokens": num_tokens, "ignore_eos": True}
    return Job([CertifyRequest(prompt, params) for prompt in prompts], fault=fault)


def assert_same_tokens(reference: Reference, prompts: Sequence[Tokens], result: JobResult, plain: JobResult) -> None:
    """Every output equals the one without speculation, up to where the target's top two logits tie."""
    assert_same_token_ids(reference, prompts, result.tokens(), plain.tokens())


def assert_same_token_ids(
    reference: Reference, prompts: Sequence[Tokens], outputs: Sequence[list[int]], plain: Sequence[list[int]]
) -> None:
    """See `assert_same_tokens`."""
    for prompt, tokens, expected in zip(prompts, outputs, plain, strict=True):
        assert is_same(reference, CertifyRequest(prompt, {"temperature": 0.0}), tokens, expected)


def is_same(reference: Reference, request: CertifyRequest, tokens: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether two outputs are equal up to where greedy ones differ by the rounding of two tokens' logits."""
    if list(tokens) == list(expected):
        return True
    at = next((i for i, (one, other) in enumerate(zip(tokens, expected, strict=False)) if one != other), None)
    if at is None or request.params["temperature"]:
        return False
    prefix = tuple(expected[:at])
    logits = reference.logits([*request.prompt, *prefix])[-1:]
    [row] = adjusted(logits, request.prompt, [prefix], request.params | {"temperature": 1.0})
    return abs(float(row[tokens[at]] - row[expected[at]])) < TOLERANCES["float32"]


def assert_same_outputs(
    reference: Reference, requests: Sequence[CertifyRequest], result: JobResult, plain: JobResult
) -> None:
    """All that is returned of each request is the same; logprobs have a tolerance of 1e-3.

    Of tokens that a grammar masks, which are all as likely, any may be among the likeliest.
    """

    def possible(row: dict[int, float] | None) -> dict[int, float] | None:
        return row and {token: logprob for token, logprob in row.items() if logprob > -math.inf}

    def assert_near(
        rows: Sequence[dict[int, float] | None] | None, others: Sequence[dict[int, float] | None] | None
    ) -> None:
        assert (rows is None) == (others is None)
        for one, other in zip(rows or (), others or (), strict=True):
            assert len(one or ()) == len(other or ())
            assert possible(one) == pytest.approx(possible(other), abs=1e-3)

    every = zip(requests, result.outputs, plain.outputs, result.prompt_logprobs, plain.prompt_logprobs, strict=True)
    for request, outputs, expected, prompt, expected_of_prompt in every:
        assert_near(prompt, expected_of_prompt)
        for ours, theirs in zip(outputs, expected, strict=True):
            assert is_same(reference, request, ours.token_ids, theirs.token_ids), request.params
            if ours.token_ids == theirs.token_ids:
                found, wanted = ((o.text, o.finish_reason, o.stop_reason) for o in (ours, theirs))
                assert found == wanted, request.params
                assert_near(ours.logprobs, theirs.logprobs)
