"""Tests the values that ranks compare before a draft model's passes."""

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.drafting.draft_engine import rank_plan
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk


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
