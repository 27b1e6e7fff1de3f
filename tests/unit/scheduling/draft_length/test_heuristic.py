"""Two more after success, one less after failure, within bounds."""

import pytest

from vllm_spec_plugin.scheduling.draft_length.heuristic import START, HeuristicDraftLength


def test_a_request_starts_at_five_or_as_near_as_the_bounds_allow():
    assert HeuristicDraftLength(8).length("a") == START == 5
    assert HeuristicDraftLength(3).length("a") == 3
    assert HeuristicDraftLength(10, least=7).length("a") == 7


def test_a_wholly_accepted_draft_adds_two_up_to_the_most():
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 5, 5, 5)
    assert lengths.length("a") == 7
    lengths.verified("a", 7, 7, 7)
    assert lengths.length("a") == 8


@pytest.mark.parametrize(("drafted", "accepted"), [(5, 4), (5, 0), (2, 1)])
def test_a_rejection_takes_one_wherever_it_was(drafted, accepted):
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 5, drafted, accepted)
    assert lengths.length("a") == 4


def test_the_least_is_kept():
    lengths = HeuristicDraftLength(8, least=4)
    for _ in range(3):
        lengths.verified("a", 4, 4, 0)
    assert lengths.length("a") == 4


@pytest.mark.parametrize("drafted", [0, 1, 4])
def test_a_draft_shorter_than_asked_for_changes_nothing_if_it_was_right(drafted):
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 5, drafted, drafted)
    assert lengths.length("a") == 5


def test_nothing_asked_changes_nothing():
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 0, 0, 0)
    assert lengths.length("a") == 5


def test_a_draft_that_had_to_be_short_counts_in_full():
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 2, 2, 2)
    assert lengths.length("a") == 7


def test_it_recovers_after_it_was_wrong_for_long():
    lengths = HeuristicDraftLength(8)
    for _ in range(20):
        lengths.verified("a", lengths.length("a"), lengths.length("a"), 0)
    assert lengths.length("a") == 1
    grown = []
    for _ in range(4):
        length = lengths.length("a")
        lengths.verified("a", length, length, length)
        grown.append(lengths.length("a"))
    assert grown == [3, 5, 7, 8]


def test_requests_have_their_own_lengths():
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 5, 5, 5)
    lengths.verified("b", 5, 5, 0)
    assert (lengths.length("a"), lengths.length("b"), lengths.length("c")) == (7, 4, 5)


def test_a_forgotten_request_starts_again():
    lengths = HeuristicDraftLength(8)
    lengths.verified("a", 5, 5, 5)
    lengths.forget("a")
    lengths.forget("never seen")
    assert lengths.length("a") == 5


@pytest.mark.parametrize(("most", "least"), [(0, 1), (4, 0), (4, 5)])
def test_bounds_that_leave_no_length_are_refused(most, least):
    with pytest.raises(ValueError, match=f"least is {least} and most is {most}; .*1 <= least <= most"):
        HeuristicDraftLength(most, least)
