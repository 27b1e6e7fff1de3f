"""Tests the log of drafts' outcomes, and draft plans from arrays."""

import numpy as np

from vllm_spec_plugin.policy.outcome_log import (
    ACCEPTED,
    ASKED,
    DRAFTED,
    OutcomeNotes,
    Outcomes,
    plans_of,
)


def taken(notes: OutcomeNotes) -> Outcomes:
    """Takes the notes, which must exist."""
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
    """A tree without branches names no nodes: the first ones are accepted. The 64th bit of a number is its sign."""
    notes = OutcomeNotes(1)
    for nodes in ((0, 2), (), None, (0, 63)):
        notes.verified("a", ((0, 64),), 0, 64, 2, nodes=nodes)
    assert taken(notes).nodes.tolist() == [0b101, 0, 0b11, 1 - 2**63]


def test_turns_without_tokens_are_none() -> None:
    lengths, proposers = np.array([[3, 64, 0], [0, 0, 0], [2, 2, 2]]), np.array([[1, 0, -1], [1, 0, 2], [0, 1, 2]])
    assert plans_of(lengths, proposers) == [((1, 3), (0, 64)), (), ((0, 2), (1, 2), (2, 2))]
