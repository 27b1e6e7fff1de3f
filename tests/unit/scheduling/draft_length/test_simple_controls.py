"""The policies that look at neither cost nor batch, with several proposers."""

import pytest

from vllm_spec_plugin.scheduling.draft_length.control import Batch, Wish
from vllm_spec_plugin.scheduling.draft_length.heuristic import START
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl, HeuristicControl

BATCH = Batch(2, 2, 100, 16)


def wish(*limits: int, request_id: str = "a") -> Wish:
    return Wish(request_id, limits, (0,) * len(limits))


def test_fixed_asks_all_in_their_order_for_as_much_as_may_be() -> None:
    planned = FixedControl().plan([wish(8), wish(8, 5), wish(0, 5), wish(3, 0)], BATCH)
    assert planned == [((0, 8),), ((0, 8), (1, 5)), ((1, 5),), ((0, 3),)]


def test_heuristic_grows_and_shrinks_each_proposer_s_drafts_by_themselves() -> None:
    control = HeuristicControl([8, 8])
    [turns] = control.plan([wish(8, 8)], BATCH)
    assert turns == ((0, START), (1, START))
    control.verified("a", turns, 0, START, START)
    [turns] = control.plan([wish(8, 8)], BATCH)
    assert turns == ((0, START + 2), (1, START))
    control.verified("a", turns, 1, START, 0)
    assert control.plan([wish(8, 8)], BATCH) == [((0, START + 2), (1, START - 1))]
    assert control.plan([wish(8, 8, request_id="b")], BATCH) == [((0, START), (1, START))]


@pytest.mark.parametrize("source", [None, 1])
def test_who_had_no_guess_keeps_its_length(source: int | None) -> None:
    control = HeuristicControl([8, 8])
    control.verified("a", ((0, START), (1, START)), source, 0, 0)
    assert control.plan([wish(8, 8)], BATCH) == [((0, START), (1, START))]


def test_heuristic_keeps_limits_and_drafts_trees_whole() -> None:
    control = HeuristicControl([8, None])
    control.verified("a", ((0, 5), (1, 7)), 1, 7, 2)
    assert control.plan([wish(2, 7), wish(0, 7), wish(8, 0)], BATCH) == [((0, 2), (1, 7)), ((1, 7),), ((0, START),)]


def test_a_forgotten_request_starts_again() -> None:
    control = HeuristicControl([8, 8])
    control.verified("a", ((0, START), (1, START)), 1, START, START)
    control.forget("a")
    assert control.plan([wish(8, 8)], BATCH) == [((0, START), (1, START))]
