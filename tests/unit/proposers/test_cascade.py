"""Proposers that take turns."""

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member


class Scripted:
    """Drafts its own token for the requests it has a guess for, as many as it is asked for."""

    def __init__(self, token, guesses):
        self.token, self.guesses, self.calls = token, set(guesses), []

    def propose(self, requests):
        self.calls.append([(request.request_id, request.num_draft_tokens) for request in requests])
        self.views = {request.request_id: request for request in requests}
        return [
            Draft([self.token] * request.num_draft_tokens) if request.request_id in self.guesses else NO_DRAFT
            for request in requests
        ]

    def forget(self, request_id):
        raise AssertionError("nobody asked")


def view(request_id, draft_plan, count=4, depth=None, in_prompt=False):
    depth = count if depth is None else depth
    uniforms = np.arange(depth * 2.0).reshape(depth, 2)
    return RequestView(
        request_id,
        np.array([1], np.int32),
        count,
        uniforms[:, 0],
        in_prompt=in_prompt,
        depth=depth,
        sibling_uniforms=uniforms,
        draft_plan=draft_plan,
    )


def cascade(*guesses, noted=None, trees=(), kv=()):
    scripted = [Scripted(10 + place, of) for place, of in enumerate(guesses)]
    members = [Member(proposer, place in trees, place in kv) for place, proposer in enumerate(scripted)]
    notes = [] if noted is None else noted
    return Cascade(members, lambda place, views, drafts, seconds: notes.append((place, len(views), seconds))), scripted


def test_the_first_with_a_guess_drafts_and_nobody_after_it_is_asked():
    noted: list[tuple[int, int, float]] = []
    made, (first, second) = cascade("a", "abc", noted=noted)
    both = ((0, 2), (1, 3))
    drafts = made.propose([view("a", both), view("b", both), view("d", both)])
    assert [draft.token_ids for draft in drafts] == [[10, 10], [11, 11, 11], []]
    assert first.calls == [[("a", 2), ("b", 2), ("d", 2)]]
    assert second.calls == [[("b", 3), ("d", 3)]]
    assert [(place, count) for place, count, _ in noted] == [(0, 3), (1, 2)]
    assert all(seconds > 0 for _, _, seconds in noted)


def test_who_comes_to_a_proposer_first_waits_for_who_comes_to_it_later():
    """One pass of the draft model for both, whatever the order of their plans."""
    made, (first, second) = cascade("", "ab")
    drafts = made.propose([view("a", ((1, 4),)), view("b", ((0, 4), (1, 2)))])
    assert [len(draft.token_ids) for draft in drafts] == [4, 2]
    assert second.calls == [[("a", 4), ("b", 2)]]
    assert len(first.calls) == 1


def test_turns_in_opposite_orders_come_to_an_end():
    made, (first, second) = cascade("b", "a")
    drafts = made.propose([view("a", ((0, 1), (1, 1))), view("b", ((1, 1), (0, 1)))])
    assert [draft.token_ids for draft in drafts] == [[11], [10]]
    assert (len(first.calls), len(second.calls)) == (2, 1)


@pytest.mark.parametrize(("trees", "count", "depth"), [((), 3, 3), ((0,), 6, 3)])
def test_a_turn_is_no_longer_than_there_is_room(trees, count, depth):
    """For 6 tokens, 3 of them one after the other: a chain of 3, or a tree."""
    made, (only,) = cascade("a", trees=trees)
    made.propose([view("a", ((0, 8),), count=6, depth=3)])
    shown = only.views["a"]
    assert (shown.num_draft_tokens, shown.depth) == (count, depth)


def test_a_text_that_is_not_through_is_for_who_keeps_kv_and_has_the_first_turn():
    made, (first, second) = cascade("", "", kv=(1,))
    prompt = view("a", ((0, 4), (1, 4)), count=0, in_prompt=True)
    assert made.propose([prompt]) == [NO_DRAFT]
    assert (first.calls, second.calls) == ([], [])
    made.propose([view("b", ((1, 4), (0, 4)), count=0, in_prompt=True)])
    assert (first.calls, second.calls) == ([], [[("b", 0)]])
