"""What may be spent on learning, and on what."""

from typing import Any

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.allocation import Offers
from vllm_spec_plugin.scheduling.draft_length.exploration import ExplorationBudget, note_asked, pick_trials

# Two requests and two proposers. A step's first draft token takes 1.5 seconds, each more 0.5.
OFFERS = Offers(
    draft_prob=np.array([[1.0, 1.0], [0.5, 1.0]]),
    gains=np.array([[[0.8, 0.4], [0.1, 0.01]], [[0.3, 0.1], [0.2, 0.01]]]),
    draft_tokens=np.ones((2, 2, 2)),
    entry=np.zeros((2, 2)),
    limits=np.full((2, 2), 2),
    drafting=np.array([[0.1, 0.2, 0.01], [1.0, 2.0, 0.04]]),
    step=np.array([1.0, 2.5, 3.0, 3.5, 4.0, 4.5]),
    max_draft_tokens=4,
    others=0,
)
# The first proposer drafts 2 tokens for request 0; request 1 has no drafts. Row 0 is no request's.
PLAN: dict[str, Any] = {
    "lengths": np.array([[2, 0], [0, 0]]),
    "proposers": np.array([[0, 1], [0, 1]]),
    "catch_up": np.zeros((2, 2)),
    "asked": np.array([[0.0, 0.0], [8.0, 4.0], [6.0, 2.0]]),
    "rows": np.array([1, 2]),
    "now": 10,
    "rate": 2.0,
}


def picked(offers: dict[str, Any] | None = None, **changes: Any) -> list[tuple[int, float]]:
    """Per proposer, the request to try it on and the price."""
    arguments = PLAN | {"asked": PLAN["asked"].copy()} | changes
    requests, prices = pick_trials(OFFERS._replace(**(offers or {})), *arguments.values())
    return list(zip(requests.tolist(), prices.tolist(), strict=True))


@pytest.mark.parametrize(("step_seconds", "most"), [(1.0, 0.6), (0.01, 0.04)])
def test_the_budget_does_not_grow_for_ever(step_seconds: float, most: float) -> None:
    """It holds its share of a minute, or of 400 steps if that is less."""
    budget = ExplorationBudget(0.01)
    for _ in range(20_000):
        budget.served(step_seconds)
    assert budget.seconds == pytest.approx(budget.capacity) == pytest.approx(most)


def test_the_budget_pays_what_it_holds_and_any_price_when_it_is_full() -> None:
    budget = ExplorationBudget(0.01)
    assert not budget.can_pay(0.0)
    budget.served(10.0)
    assert budget.can_pay(0.1)
    assert not budget.can_pay(0.11)
    budget.served(50.0)
    assert budget.can_pay(7.0)
    budget.pay(7.0)
    budget.served(60.0)
    assert not budget.can_pay(0.0)


def test_a_request_without_a_draft_costs_what_it_adds_to_drafting_and_to_the_step() -> None:
    """The first proposer drafts already, and so does the step: only a token is added to both."""
    assert picked()[0] == pytest.approx((1, 0.01 + 0.5))
    catch_up = np.array([[0.0, 3.0], [0.0, 0.0]])
    assert picked(catch_up=catch_up)[0] == pytest.approx((1, 3.0 + 0.01 + 0.5))


def test_the_first_draft_token_of_a_step_costs_more() -> None:
    """Nothing else is drafted, so that the proposer is asked for this one only, and the step gets its first token."""
    nothing = np.zeros((2, 2), np.int64)
    assert picked(lengths=nothing)[0] == pytest.approx((1, 0.1 + 0.2 + 0.01 + 1.5))


def test_a_request_with_a_draft_loses_what_its_turns_would_have_brought() -> None:
    """Half of the time request 0 has the second proposer's token instead of 1.2 accepted ones at 2 a second."""
    request, price = picked({"limits": np.array([[2, 2], [2, 0]])})[1]
    assert request == 0
    assert price == pytest.approx(3.0 + 0.04 + 0.5 * 1.2 / 2)


def test_later_turns_count_as_far_as_they_come() -> None:
    """Request 0 is to be drafted for by the second proposer, which has a draft half of the time, and then the first."""
    plan = {"lengths": np.array([[2, 1], [0, 0]]), "proposers": np.array([[1, 0], [0, 1]])}
    request, price = picked({"limits": np.array([[2, 2], [0, 0]])}, **plan)[0]
    assert request == 0
    assert price == pytest.approx(0.01 + 1.0 * (0.4 + 0.5 * 0.8) / 2)


def test_a_new_request_is_not_due() -> None:
    """It counts as asked now."""
    asked = np.array([[0.0, 0.0], [8.0, 4.0], [0.0, 0.0]])
    assert picked(asked=asked)[1][0] == 0
    assert asked[2, 1] == 10


def test_the_proposer_that_is_asked_first_anyway_is_not_tried() -> None:
    """The first proposer is planned for request 0, and, if it is for both, for neither."""
    waited = np.array([[0.0, 0.0], [1.0, 1.0], [6.0, 6.0]])
    assert picked(asked=waited)[0][0] == 1
    assert picked(lengths=np.array([[2, 0], [1, 0]]), asked=waited)[0] == (-1, 0.0)


def test_nothing_is_tried_beyond_limits_and_room() -> None:
    """A request that has a draft planned has room for one token anyhow."""
    assert picked({"limits": np.array([[2, 0], [0, 0]])}) == [(-1, 0.0), (-1, 0.0)]
    assert [request for request, _ in picked({"max_draft_tokens": 2})] == [-1, 0]


def test_whoever_was_asked_is_noted() -> None:
    """Two proposers, two requests: of each the draft tokens that it was asked for, drafted, and accepted."""
    asked = PLAN["asked"].copy()
    note_asked(asked, PLAN["rows"], np.array([[[3, 0], [0, 0], [0, 0]], [[0, 1], [0, 1], [0, 0]]]), 12)
    assert asked.tolist() == [[0, 0], [12, 4], [6, 12]]
