"""Policies without regard to cost and batch: all that may be, or two more after success and one less after failure."""

import pytest

from vllm_spec_plugin.policy.control import DraftRequest, StepBatch
from vllm_spec_plugin.policy.fixed import FixedControl, HeuristicControl

BATCH = StepBatch(2, 2, 100, 16)


def request(*limits: int, request_id: str = "a") -> DraftRequest:
    """With those limits, and nothing to catch up with."""
    return DraftRequest(request_id, limits, (0,) * len(limits))


def length_of(control: HeuristicControl, request_id: str = "a") -> int:
    """Plans the next draft length of the only proposer."""
    [((_, length),)] = control.plan([request(100, request_id=request_id)], BATCH)
    return length


def test_fixed_asks_all_in_their_order_for_as_much_as_may_be() -> None:
    control = FixedControl()
    planned = control.plan([request(8), request(8, 5), request(0, 5), request(3, 0)], BATCH)
    assert planned == [((0, 8),), ((0, 8), (1, 5)), ((1, 5),), ((0, 3),)]
    assert control.is_constant
    assert control.begin_step(1)


@pytest.mark.parametrize(
    ("source", "drafted", "accepted", "length"),
    [(0, 5, 4, 4), (0, 5, 0, 4), (0, 2, 1, 4), (0, 5, 5, 7), (0, 4, 4, 5), (0, 0, 0, 5), (None, 0, 0, 5), (1, 5, 0, 5)],
)
def test_a_rejection_takes_one_and_a_whole_right_draft_gives_two(
    source: int | None, drafted: int, accepted: int, length: int
) -> None:
    """A draft shorter than asked for says nothing if it was right; a forgotten request starts again."""
    control = HeuristicControl([8, 8])
    control.verified("a", ((0, 5), (1, 5)), source, drafted, accepted)
    assert control.plan([request(8, 0)], BATCH) == [((0, length),)]
    control.forget("a")
    control.forget("never seen")
    assert control.plan([request(8, 0)], BATCH) == [((0, 5),)]


def test_it_shrinks_to_one_and_grows_again() -> None:
    control, grown = HeuristicControl([8]), []
    for _ in range(20):
        control.verified("a", ((0, 5),), 0, 5, 0)
    assert length_of(control) == 1
    for _ in range(4):
        length = length_of(control)
        control.verified("a", ((0, length),), 0, length, length)
        grown.append(length_of(control))
    assert grown == [3, 5, 7, 8]


def test_requests_and_proposers_have_their_own_lengths() -> None:
    control = HeuristicControl([8, 8])
    control.verified("a", ((0, 5), (1, 5)), 0, 5, 5)
    control.verified("a", ((0, 7), (1, 5)), 1, 5, 0)
    planned = control.plan([request(8, 8), request(8, 8, request_id="b")], BATCH)
    assert planned == [((0, 7), (1, 4)), ((0, 5), (1, 5))]


def test_heuristic_keeps_limits_and_drafts_trees_whole() -> None:
    control = HeuristicControl([8, None])
    control.verified("a", ((0, 5), (1, 7)), 1, 7, 2)
    planned = control.plan([request(2, 7), request(0, 7), request(8, 0)], BATCH)
    assert planned == [((0, 2), (1, 7)), ((1, 7),), ((0, 5),)]
