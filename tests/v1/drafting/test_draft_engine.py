"""Tests the values that ranks compare before a draft model's passes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.drafting.draft_engine import VllmDraftEngine, rank_plan
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage


def plan_of(*chunks: tuple[int, int, int, int]) -> list[int]:
    """Builds the compared plan of chunks, each a row, its first and last position and its draft length."""
    given = []
    for row, start, stop, length in chunks:
        view = RequestView(f"r{row}", np.zeros(stop, np.int32), length, np.zeros(length), row=row)
        given.append(TextChunk(view, start, stop, length, []))
    return rank_plan(given)


@pytest.mark.parametrize("other", [(1, 3, 7, 4), (0, 2, 7, 4), (0, 3, 8, 4), (0, 3, 7, 3)])
def test_ranks_compare_rows_positions_and_draft_lengths(other: tuple[int, int, int, int]) -> None:
    """With any other of them, a rank would run other passes, or a collective more than the others."""
    assert plan_of((2, 0, 5, 4), (0, 3, 7, 4)) == plan_of((2, 0, 5, 4), (0, 3, 7, 4))
    assert plan_of((2, 0, 5, 4), (0, 3, 7, 4)) != plan_of((2, 0, 5, 4), other)


@pytest.mark.parametrize(("loaded", "computed"), [({}, 8), ({"a": 4}, 4), ({"a": 0}, 0)])
def test_blocks_that_a_connector_loads_are_not_computed(loaded: dict[str, int], computed: int) -> None:
    """The pool's blocks 1 and 2 were computed for another request, and are given to this one."""
    engine: Any = object.__new__(VllmDraftEngine)
    engine.coverage, engine._sizes = DraftCoverage(4, (4,)), (4,)
    engine._attention = SimpleNamespace(kv_cache_groups=[0])
    tables = [np.array([1, 2, 3], np.int32)]
    engine.coverage.computed("before", 0, 8, tables)
    new = SimpleNamespace(req_id="a", num_computed_tokens=8, block_ids=([1, 2, 3],))
    cached = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[])
    engine.note_blocks(None, SimpleNamespace(scheduled_new_reqs=[new], scheduled_cached_reqs=cached), loaded)
    assert engine.coverage.watermark("a", np.zeros(9, np.int32), tables) == computed
