"""Tests the tokens computed in a step; test_coverage.py has random steps."""

import numpy as np
import pytest

from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import CatchUpLimits, num_draft_tokens, plan_catch_up
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage

BLOCK_SIZE = 4


def view(row, length, k=3, num_slots=100, in_prompt=False):
    """A request named by a letter, whose text is as long as that."""
    text = np.arange(length, dtype=np.int32)
    return RequestView("abcdefgh"[row], text, k, np.zeros(k), row=row, num_slots=num_slots, in_prompt=in_prompt)


class Step:
    """Requests with a block table each, 25 blocks of their own unless told otherwise."""

    def __init__(self, *views, tables=None):
        self.views = views
        self.tables = {v.row: np.arange(25, dtype=np.int32) + 25 * v.row for v in views} | (tables or {})
        self.coverage = DraftCoverage(25 * 8, [BLOCK_SIZE])

    def block_tables(self, row):
        return [self.tables[row]]

    def plan(self, budget=1000, max_len=1000):
        """Per chunk (name, start, stop, K), in the plan's order; takes note of what is computed."""
        chunks = plan_catch_up(self.views, self.coverage, self.block_tables, CatchUpLimits(budget, max_len))
        for chunk in chunks:
            tables = self.block_tables(chunk.request.row)
            self.coverage.computed(chunk.request.request_id, chunk.start, chunk.stop, tables)
        return [(c.request.request_id, c.start, c.stop, c.num_draft_tokens) for c in chunks]


def test_shared_blocks_count_only_as_far_as_they_are_computed():
    """The budget ends in the middle of the third block."""
    shared = np.arange(25, dtype=np.int32)
    step = Step(view(0, 18, k=3), view(1, 19, k=2), tables={0: shared, 1: shared})
    assert step.plan(budget=10) == [("a", 0, 10, 0)]
    # What b lacks lies in blocks that a fills in this step.
    assert step.plan(budget=12) == [("a", 10, 18, 3), ("b", 16, 19, 2)]


@pytest.mark.parametrize(
    ("num_slots", "max_len", "expected"),
    [
        (100, 1000, 5),
        # The target verifies K drafts behind the text.
        (15, 1000, 5),
        (14, 1000, 4),
        (11, 1000, 1),
        (10, 1000, 0),
        (9, 1000, 0),
        # The draft computes all but the last: positions 10 to 13 for five.
        (100, 14, 5),
        (100, 13, 4),
        (100, 10, 1),
        (100, 9, 0),
        (100, 3, 0),
    ],
)
def test_k_is_cut_to_slots_and_to_the_drafts_context(num_slots, max_len, expected):
    request = view(0, 10, k=5, num_slots=num_slots)
    assert num_draft_tokens(request, CatchUpLimits(100, max_len)) == expected
    planned = Step(request).plan(max_len=max_len)
    assert planned == ([("a", 0, 10, expected)] if expected else [])
