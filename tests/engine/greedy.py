"""Comparing outputs at temperature 0."""

from collections.abc import Sequence

from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import Job, Request, Result

# The target's two likeliest tokens are told apart by less than this only by rounding.
TIE = 1e-4


def greedy_job(prompts: Sequence[Tokens], num_tokens: int, fault: str = "") -> Job:
    """All prompts, `num_tokens` each."""
    params = {"temperature": 0.0, "max_tokens": num_tokens, "ignore_eos": True}
    return Job([Request(prompt, params) for prompt in prompts], fault=fault)


def assert_same_tokens(reference: Reference, prompts: Sequence[Tokens], result: Result, plain: Result) -> None:
    """Every output equals the one without speculation, up to where the target's top two logits tie."""
    assert_same_token_ids(reference, prompts, result.tokens(), plain.tokens())


def assert_same_token_ids(
    reference: Reference, prompts: Sequence[Tokens], outputs: Sequence[list[int]], plain: Sequence[list[int]]
) -> None:
    """See `assert_same_tokens`."""
    for i, (prompt, tokens, expected) in enumerate(zip(prompts, outputs, plain, strict=True)):
        assert len(tokens) == len(expected)
        if tokens != expected:
            same = next(j for j, (a, b) in enumerate(zip(tokens, expected, strict=True)) if a != b)
            top = reference.logits([*prompt, *expected[:same]])[-1].topk(2)
            gap = float(top.values[0] - top.values[1])
            differing = {tokens[same], expected[same]}
            assert gap < TIE, f"prompt {i}: token {same} is one of {differing}; top two logits are {gap} apart"
            assert differing == set(top.indices.tolist())
