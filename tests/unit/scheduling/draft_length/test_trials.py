"""What a trial costs, and on whom it is made."""

from typing import Any

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.trials import longest_due

# Two requests and two proposers: the first drafts 2 tokens for request 0, nobody does for request 1.
PLAN: dict[str, Any] = {
    "proposers": np.array([[0, -1], [0, -1]]),
    "reach": np.array([[1.0, 0.0], [1.0, 0.0]]),
    "lengths": np.array([[2, 0], [0, 0]]),
    "gains": np.array([[[0.8, 0.4], [0.1, 0.0]], [[0.3, 0.1], [0.2, 0.0]]]),
    "delivered": np.ones((2, 2, 2)),
    "there": np.array([[1.0, 1.0], [0.5, 1.0]]),
    "limits": np.full((2, 2), 2),
    "unit": np.ones((2, 2), np.int64),
    "draft": np.array([[0.1, 0.2, 0.01], [1.0, 2.0, 0.04]]),
    "catch_up": np.zeros((2, 2)),
    "asked": np.array([[0.0, 0.0], [8.0, 4.0], [6.0, 2.0]]),
    "rows": np.array([1, 2]),
    "now": 10,
    "rate": 2.0,
    "row_seconds": 0.5,
    "most_tokens": 10,
    "dearest": 100.0,
    "unknown": np.zeros(2, bool),
}


def due(**changes: Any) -> list[tuple[int, float]]:
    """Per proposer, the request to try it on and the price."""
    chosen, prices = longest_due(*(PLAN | changes).values())
    return list(zip(chosen.tolist(), prices.tolist(), strict=True))


def test_a_request_that_is_off_costs_its_row_and_what_drafting_adds_less_half_of_what_it_brings() -> None:
    """The first proposer drafts already, so that only a token is added; request 0 has it already."""
    request, price = due()[0]
    assert request == 1
    assert price == pytest.approx(0.01 + 0.5 - 0.5 * 0.1 / 2)


def test_a_request_that_is_on_loses_what_the_planned_turns_would_have_brought() -> None:
    """Half of the time request 0 has the second proposer's token instead of 1.2 accepted ones."""
    off = {"limits": np.array([[2, 2], [2, 0]])}
    request, price = due(**off)[1]
    assert request == 0
    assert price == pytest.approx(3.0 + 0.04 + (0.5 * 1.2 - 0.5 * 0.3) / 2)


def test_who_waited_longest_for_its_price_comes_first() -> None:
    assert due()[1][0] == 1
    longer = PLAN["asked"].copy()
    longer[1, 1] = 1.0
    longer[2, 1] = 5.0
    assert due(asked=longer)[1][0] == 0


def test_a_new_request_has_not_waited() -> None:
    new = PLAN["asked"].copy()
    new[2] = 0
    assert due(asked=new)[1][0] == 0
    assert new[2, 1] == 10


def test_nothing_is_tried_beyond_limits_room_or_means() -> None:
    assert due(limits=np.array([[2, 0], [0, 0]])) == [(-1, 0.0), (-1, 0.0)]
    assert [request for request, _ in due(most_tokens=2)] == [-1, 0]
    assert due(dearest=1.0)[1] == (-1, 0.0)


def test_what_is_unknown_may_cost_more_but_for_catching_up() -> None:
    unknown = np.array([False, True])
    assert due(dearest=1.0, unknown=unknown)[1][0] >= 0
    assert due(dearest=1.0, unknown=unknown, catch_up=np.full((2, 2), 2.0))[1] == (-1, 0.0)


def test_a_trial_that_promises_more_than_it_costs_costs_a_tenth() -> None:
    assert due(rate=0.01)[0][1] == pytest.approx(0.1 * (0.01 + 0.5))
