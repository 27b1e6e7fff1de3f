"""Recorded responses: what a shorter draft would have become, and the way to a file and back."""

import json

from tests.unit.tools.bench.replay.cases import chain
from vllm_spec_plugin.tools.bench.replay.traces import NOTHING, Trace, Verified


def test_a_shorter_draft_is_accepted_up_to_its_end() -> None:
    outcome = Verified(8, (0, 1, 2))
    assert outcome.first(2) == Verified(2, (0, 1))
    assert outcome.first(5) == Verified(5, (0, 1, 2))


def test_a_path_through_a_tree_ends_where_a_node_is_missing() -> None:
    # 4 follows 0, 7 follows 4.
    outcome = Verified(9, (0, 4, 7))
    assert outcome.first(5) == Verified(5, (0, 4))
    assert outcome.first(4) == Verified(4, (0,))
    assert outcome.first(9) == outcome


def test_there_are_no_drafts_beyond_what_was_recorded() -> None:
    one = Trace("easy", 3, (chain("12", "01"),))
    assert one.num_tokens == 2
    assert one.at(0, 1, 1) == Verified(1, (0,))
    assert one.at(0, 2, 1) == NOTHING


def test_chains_and_trees_come_back_from_json() -> None:
    tree = (NOTHING, Verified(40, (0, 10, 37)), Verified(40, (1,)))
    one = Trace("hard", 12, (chain("048", "023"), tree))
    values = json.loads(json.dumps(one.to_json()))
    assert values["drafted"][0] == "048"
    assert values["accepted"][0] == "023"
    assert Trace.from_json(values) == one
