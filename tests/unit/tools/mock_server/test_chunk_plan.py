"""Plans of responses: sizes, times, failures."""

import pytest

from vllm_spec_tools.mock_server.chunk_plan import draft_length, plan_response, planned_failure
from vllm_spec_tools.mock_server.options import MockOptions


def sizes(options: MockOptions, number: int, num_tokens: int) -> list[int]:
    return [step.num_tokens for step in plan_response(options, number, num_tokens).steps]


def test_without_speculation_every_chunk_has_one_token_and_nothing_is_drafted() -> None:
    steps = plan_response(MockOptions(ttft_ms=100, itl_ms=20), 0, 4).steps
    assert [(step.num_tokens, step.num_drafts) for step in steps] == [(1, 0)] * 4
    assert [step.at for step in steps] == pytest.approx([0.1, 0.12, 0.14, 0.16])


@pytest.mark.parametrize("mean", [1.3, 2.0, 2.5, 4.0])
def test_chunks_have_the_mean_that_was_asked_for(mean: float) -> None:
    """The standard error of 20,000 chunks' mean is at most 0.012: 5 of them."""
    drawn = sizes(MockOptions(tokens_per_chunk=mean), 0, round(20000 * mean))[1:-1]
    assert sum(drawn) / len(drawn) == pytest.approx(mean, abs=0.06)
    assert set(drawn) == set(range(1, draft_length(mean) + 2))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 0.3, 1.0])
def test_every_run_of_requests_has_its_share_of_failures(rate: float) -> None:
    fails = [planned_failure(rate, number) is not None for number in range(1000)]
    assert sum(fails) == round(1000 * rate)
    for begin in range(0, 1000, 100):
        assert sum(fails[begin : begin + 100]) == round(100 * rate)
