"""Hidden states of steps, and the texts that a head computes without drafts; state i of a step is i."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.v1.drafting import head_engine
from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine
from vllm_spec_plugin.v1.drafting.head_engine import HeadEngine
from vllm_spec_plugin.v1.drafting.state_buffer import StateBuffer
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage

BLOCK, MAX_REQUESTS = 4, 8
Computed = list[tuple[str, int, int]]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    """Request, first position and end of each text that was computed without drafts."""
    chunks: Computed = []

    def start(self: Any, new: list[TextChunk], num_steps: int) -> None:
        chunks.extend((chunk.request.request_id, chunk.start, chunk.stop) for chunk in new)

    monkeypatch.setattr(VllmDraftEngine, "start", start)
    return chunks


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, computed: Computed) -> Any:
    """An engine whose requests have texts of 500 tokens, and blocks of their own by row of the batch."""
    monkeypatch.setattr(head_engine, "step_spans", lambda spans: spans)
    monkeypatch.setattr(
        head_engine,
        "aux_states",
        lambda spans: torch.arange(sum(count for *_, count in spans), dtype=torch.float)[:, None],
    )
    blocks = np.arange(MAX_REQUESTS * 125, dtype=np.int32).reshape(MAX_REQUESTS, -1)
    monkeypatch.setattr(HeadEngine, "block_tables", lambda self, row: [blocks[row]])
    engine: Any = HeadEngine.__new__(HeadEngine)
    engine.states = StateBuffer(torch.empty(1000, 1), 400)
    # Texts come together as with blocks of 32 tokens.
    engine.coverage, engine._sizes = DraftCoverage(blocks.size, [BLOCK]), (32,)
    engine._num_since, engine._step_tokens = 0, 400
    batch = SimpleNamespace(
        num_tokens_no_spec=np.full(MAX_REQUESTS, 500), token_ids_cpu=np.zeros((MAX_REQUESTS, 500), dtype=np.int32)
    )
    engine._runner = SimpleNamespace(input_batch=batch)
    return engine


@pytest.mark.parametrize("planned", [set(), {"a", "b"}], ids=["without a plan", "with a plan"])
def test_text_that_the_head_does_not_draft_from_is_computed_when_it_has_come_together(
    planned: set[str], engine: Any, computed: Computed
) -> None:
    """Requests with a draft plan, too: a proposer before the head may draft for them for as long as they live."""
    for step in range(300):
        engine.note_states([("a", step, 1), ("b", 3 * step, 3)][: 2 if 3 * step < 400 else 1], planned)
        waiting = [stop - first for first, stop in map(engine.states.span, "ab")]
        assert max(waiting) <= 64
    assert engine.states.num_lost == 0
    ends = dict.fromkeys("ab", 0)
    for name, start, stop in computed:
        assert start == ends[name]
        ends[name] = stop
    assert ends["a"] > 250
    assert ends["b"] > 350


def test_a_request_that_the_head_drafts_for_is_left_to_it(engine: Any, computed: Computed) -> None:
    for step in range(100):
        engine.note_states([("a", step, 1)], {"a"})
        engine.coverage.computed("a", step, step + 1, engine.block_tables(0))
        engine.states.drop_before("a", step)
    assert not computed
    assert engine.states.span("a") == (99, 100)


def test_states_after_a_prefix_that_the_head_has_not_computed_are_dropped(engine: Any, computed: Computed) -> None:
    """But not in the first step: blocks of another request of that step are not computed yet."""
    engine.note_states([("hit", 8, 40)], set())
    assert engine.states.span("hit") == (8, 48)
    engine.note_states([("hit", 48, 40)], set())
    assert engine.states.span("hit") == (0, 0)
    assert engine.states.num_lost == 1
    assert not computed


def test_a_fault_leaves_states_for_the_next_time(
    engine: Any, computed: Computed, monkeypatch: pytest.MonkeyPatch
) -> None:
    start: Callable[..., Any] = VllmDraftEngine.start
    monkeypatch.setattr(VllmDraftEngine, "start", lambda *_: math.sqrt(-1))
    with pytest.raises(ValueError, match="math domain"):
        engine.note_states([("a", 0, 40)], set())
    monkeypatch.setattr(VllmDraftEngine, "start", start)
    engine.note_states([("a", 40, 40)], set())
    assert computed == [("a", 0, 80)]


class Ranks:
    """Notes what this rank tells the others, which always agree."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note_fault(self) -> None:
        self.said.append("fault")

    def at_end(self, drafts: list[Any]) -> bool:
        self.said.append(f"end {len(drafts)}")
        return not drafts


def test_ranks_meet_in_steps_that_follow_from_the_plan(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a rank with a fault, which others would wait for."""
    ranks = Ranks()
    engine.ranks = ranks
    assert engine.note_states([("a", 0, 20)], set())
    assert not ranks.said
    assert engine.note_states([("a", 20, 20)], set())
    assert ranks.said == ["end 0"]
    monkeypatch.setattr(StateBuffer, "add", lambda *_: math.sqrt(-1))
    with pytest.raises(ValueError, match="math domain"):
        engine.note_states([("a", 40, 40)], set())
    assert ranks.said[1:] == ["fault", "end 1"]
