"""Comparing outputs at temperature 0."""

from collections.abc import Sequence

from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from vllm_spec_tools.certify.greedy import TOLERANCES, first_differences


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

    def top_two(request: int, position: int) -> dict[int, float]:
        top = reference.logits([*prompts[request], *plain[request][:position]])[-1].topk(2)
        return dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))

    faults = [d for d in first_differences(outputs, plain, top_two, TOLERANCES["float32"]) if not d.is_tie]
    assert not faults
