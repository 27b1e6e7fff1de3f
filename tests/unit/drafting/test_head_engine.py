"""Hidden states of a step that verifies trees: of the text kept at once, of nodes once they are accepted."""

from typing import Any

import pytest
import torch

from vllm_spec_plugin.drafting import head_engine
from vllm_spec_plugin.drafting.draft_engine import VllmDraftEngine
from vllm_spec_plugin.drafting.head_engine import HeadEngine
from vllm_spec_plugin.drafting.state_buffer import Span, StateBuffer


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A head engine that only keeps states; state i of a step is i."""

    def aux_states(runner: list[Span]) -> tuple[torch.Tensor, list[Span]]:
        return torch.arange(sum(count for _, _, count in runner), dtype=torch.float32)[:, None], runner

    monkeypatch.setattr(head_engine, "aux_states", aux_states)
    engine = HeadEngine.__new__(HeadEngine)
    engine.states = StateBuffer(1000)
    engine._nodes = {}
    return engine


def kept(engine: HeadEngine, request_id: str) -> list[float]:
    states = torch.cat(engine.states.take(request_id, *engine.states.span(request_id)))
    return states.squeeze(1).tolist()


def test_states_of_accepted_nodes_follow_those_of_the_text(engine: HeadEngine) -> None:
    """A chain between two trees of four nodes; the second tree's drafts are all rejected."""
    step = [("tree", 10, 5), ("chain", 20, 3), ("rejected", 0, 6)]
    engine.note_states(step, {"tree", "chain", "rejected"}, {0: 4, 2: 4})
    assert kept(engine, "tree") == [0]
    engine.note_accepted({0: (1, 3), 2: ()})
    assert engine.states.span("tree") == (10, 13)
    assert kept(engine, "tree") == [0, 2, 4]
    assert engine.states.span("chain") == (20, 23)
    assert kept(engine, "chain") == [5, 6, 7]
    assert engine.states.span("rejected") == (0, 2)
    assert kept(engine, "rejected") == [8, 9]


def test_nodes_of_an_earlier_step_are_not_accepted_later(engine: HeadEngine) -> None:
    engine.note_states([("a", 0, 3)], {"a"}, {0: 2})
    engine.note_states([("a", 1, 1)], {"a"}, {})
    engine.note_accepted({0: (0,)})
    assert engine.states.span("a") == (0, 2)


def test_requests_that_verify_trees_are_not_computed_before_their_blocks_are_joined(
    engine: HeadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[tuple[int, str]] = []
    monkeypatch.setattr(HeadEngine, "_compute", lambda self, requests: computed.extend(requests))
    engine.note_states([("tree", 0, 40), ("prompt", 0, 40), ("planned", 0, 40)], {"planned"}, {0: 4})
    assert computed == [(1, "prompt")]


def test_branches_go_on_from_their_requests_states(engine: HeadEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VllmDraftEngine, "branch", lambda self, counts: None)
    engine._states = torch.tensor([[0.0], [1.0], [2.0]])
    engine.branch([2, 0, 3])
    assert engine._states.squeeze(1).tolist() == [0, 0, 2, 2, 2]
