"""Estimates of acceptance by kind."""

import pytest

from vllm_spec_plugin.proposers.grammar.acceptance import KindAcceptance
from vllm_spec_plugin.proposers.grammar.state import Kind

FORCED, LIKELY, GUESS = Kind


def test_only_outcomes_of_a_kind_change_its_estimate() -> None:
    estimates = KindAcceptance()
    likely = estimates.of("a", LIKELY)
    assert estimates.of("a", FORCED) == 1 > likely > estimates.of("a", GUESS) > 0.5
    # Tokens after the first rejected one are no outcomes.
    for _ in range(30):
        estimates.verified("a", [FORCED, GUESS, LIKELY], 1)
    assert estimates.of("a", GUESS) < 0.1
    assert estimates.of("a", LIKELY) == likely
    assert estimates.of("a", FORCED) == 1


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_request_has_its_own_estimate_beside_that_of_all(accepted: int) -> None:
    estimates = KindAcceptance()
    for i in range(200):
        estimates.verified(f"r{i}", [GUESS], 1 - accepted)
        estimates.forget(f"r{i}")
    assert estimates.of("new", GUESS) == pytest.approx(1 - accepted, abs=0.1)
    for _ in range(30):
        estimates.verified("a", [GUESS], accepted)
    assert estimates.of("a", GUESS) == pytest.approx(accepted, abs=0.1)
    estimates.forget("a")
    assert estimates.of("a", GUESS) == estimates.of("new", GUESS)


def test_a_kind_that_fails_rests_and_is_tried_again() -> None:
    estimates, tried = KindAcceptance(), []
    for _ in range(200):
        is_tried = estimates.num_worth("a", [GUESS], 0.4) == 1
        tried.append(is_tried)
        if is_tried:
            estimates.verified("a", [GUESS], 0)
    assert tried[0]
    assert 2 <= sum(tried) <= 12
    assert any(tried[100:])
