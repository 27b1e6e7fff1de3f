"""What is noted of drafts, and turns from arrays."""

import numpy as np
import pytest

from vllm_spec_plugin.scheduling.draft_length.outcomes import ACCEPTED, ASKED, DRAFTED, OutcomeNotes, Outcomes, turns_of
from vllm_spec_plugin.turns import Turns


def taken(notes: OutcomeNotes) -> Outcomes:
    """Of notes that there are."""
    outcomes = notes.take()
    assert outcomes is not None
    return outcomes


def test_who_was_asked_before_the_one_with_a_draft_had_none() -> None:
    notes = OutcomeNotes(3)
    notes.verified("a", ((2, 4), (0, 3), (1, 5)), 0, 2, 1)
    notes.verified("b", ((1, 5), (0, 3)), None, 0, 0)
    notes.verified("c", (), None, 0, 0)
    found = taken(notes)
    assert list(found.request_ids) == ["a", "b", "c"]
    assert found.num_tokens.tolist() == [2, 1, 1]
    assert found.of_proposers[:, ASKED].tolist() == [[3, 3, 0], [0, 5, 0], [4, 0, 0]]
    assert found.of_proposers[:, DRAFTED].tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert found.of_proposers[:, ACCEPTED].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert notes.take() is None


def test_steps_of_one_request_stay_apart_and_in_order() -> None:
    notes = OutcomeNotes(1)
    for accepted in (0, 3):
        notes.verified("a", ((0, 3),), 0, 3, accepted)
    found = taken(notes)
    assert found.of_proposers[0].tolist() == [[3, 3], [3, 3], [0, 3]]
    assert found.num_tokens.tolist() == [1, 4]


def test_output_tokens_of_steps_without_drafts_are_added() -> None:
    """The first step tells 3 tokens of 10; the next one is at 25. A request that is forgotten begins again."""
    notes = OutcomeNotes(1)
    notes.verified("a", ((0, 2),), 0, 2, 2, 10)
    notes.verified("a", ((0, 2),), 0, 2, 1, 25)
    notes.verified("b", ((0, 2),), 0, 2, 1, 7)
    notes.forget("a")
    notes.verified("a", ((0, 2),), 0, 2, 0, 100)
    assert taken(notes).num_tokens.tolist() == [3, 15, 2, 1]


def test_accepted_nodes_of_a_tree_are_bits() -> None:
    """A tree without branches names no nodes: the first ones are accepted."""
    notes = OutcomeNotes(1)
    for nodes in ((0, 2), (), None, (5,)):
        notes.verified("a", ((0, 6),), 0, 6, 2, nodes=nodes)
    assert taken(notes).nodes.tolist() == [0b101, 0, 0b11, 0b100000]


def test_the_last_node_of_the_largest_tree_is_a_bit_too() -> None:
    """64 nodes are allowed, and a number has 64 bits."""
    notes = OutcomeNotes(1)
    notes.verified("a", ((0, 64),), 0, 64, 2, nodes=(0, 63))
    nodes = taken(notes).nodes
    assert [int(nodes[0] >> i & 1) for i in range(64)] == [1, *[0] * 62, 1]


@pytest.mark.parametrize("turns", [(), ((0, 1),), ((2, 64),), ((1, 3), (0, 64)), ((0, 2), (1, 2), (2, 2))])
def test_all_turns_that_were_tried_without_a_draft_are_noted(turns: Turns) -> None:
    rows = [*turns, *[(-1, 0)] * (3 - len(turns))]
    proposers, lengths = (np.array([column], np.int64) for column in zip(*rows, strict=True))
    assert turns_of(lengths, proposers) == [turns]
    notes = OutcomeNotes(3)
    notes.verified("a", turns, None, 0, 0)
    asked = taken(notes).of_proposers[:, ASKED, 0].tolist()
    assert asked == [dict(turns).get(proposer, 0) for proposer in range(3)]


def test_turns_without_tokens_are_none() -> None:
    assert turns_of(np.array([[0, 3], [0, 0]]), np.array([[1, 0], [0, 1]])) == [((0, 3),), ()]
