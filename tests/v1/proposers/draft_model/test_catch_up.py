"""Tests the tokens computed in a step: enough for as many drafts as possible, within the budget, nothing twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

    def computed(self, row, stop, draft_tokens_in_kv=()):
        self.coverage.computed("abcdefgh"[row], 0, stop, [self.tables[row]], draft_tokens_in_kv)
        return self

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


@st.composite
def batches(draw):
    """Requests in any state; the first blocks of some are the first one's."""
    views, tables, computed = [], {}, {}
    for row in range(draw(st.integers(1, 5))):
        length, in_prompt = draw(st.integers(1, 40)), draw(st.booleans())
        num_slots = BLOCK_SIZE * draw(st.integers(0 if in_prompt else length // BLOCK_SIZE, 12))
        k = 0 if in_prompt else draw(st.integers(0, 6))
        views.append(view(row, length, k, num_slots, in_prompt))
        most = min(min(v.num_slots, len(v.token_ids)) for v in (views[0], views[-1]))
        shared = draw(st.integers(0, most // BLOCK_SIZE))
        tables[row] = np.arange(25, dtype=np.int32) + 25 * row
        tables[row][:shared] = tables[0][:shared]
        computed[row] = draw(st.none() | st.integers(0, min(length, num_slots)))
    step = Step(*views, tables=tables)
    for row, stop in computed.items():
        if stop is not None:
            step.computed(row, stop)
    # The end of the context is the end of a block, as in most models.
    return step, CatchUpLimits(draw(st.integers(1, 60)), BLOCK_SIZE * draw(st.integers(1, 15)))


@given(batches())
@settings(max_examples=100, deadline=None)
def test_any_plan_keeps_its_promises(batch):
    step, limits = batch
    chunks = plan_catch_up(step.views, step.coverage, step.block_tables, limits)
    assert len({chunk.request.request_id for chunk in chunks}) == len(chunks)
    assert sum(chunk.stop - chunk.start for chunk in chunks) <= limits.catch_up_tokens
    assert [c.num_draft_tokens for c in chunks] == sorted((c.num_draft_tokens for c in chunks), reverse=True)
    written: list[tuple[int, int]] = []
    repeated: set[tuple[int, int]] = set()
    for chunk in chunks:
        request, length = chunk.request, len(chunk.request.token_ids)
        assert chunk.start < chunk.stop <= min(length, request.num_slots, limits.max_len)
        if chunk.num_draft_tokens:
            assert chunk.num_draft_tokens == num_draft_tokens(request, limits)
            assert chunk.stop == length
        else:
            assert request.in_prompt or chunk.stop < length
        slots = slots_of(step, request, range(chunk.start, chunk.stop))
        # A last token's output is needed, whoever else computes that token in this step or did in an earlier one.
        if chunk.num_draft_tokens and len(slots) == 1:
            repeated.update(slots)
        else:
            written += slots
    assert len(written) == len(set(written)), "computed twice"
    covered = {v.row: step.coverage.watermark(v.request_id, v.token_ids, step.block_tables(v.row)) for v in step.views}
    known = {*written, *repeated}
    for request in step.views:
        known.update(slots_of(step, request, range(covered[request.row])))
    for chunk in chunks:
        assert chunk.start >= min(covered[chunk.request.row], chunk.stop - 1), "computed in an earlier step"
        assert set(slots_of(step, chunk.request, range(chunk.start))) <= known, "left out"


def slots_of(step, request, positions):
    table = step.tables[request.row]
    return [(int(table[i // BLOCK_SIZE]), i % BLOCK_SIZE) for i in positions]


@given(batches())
@settings(max_examples=60, deadline=None)
def test_whoever_could_draft_does_if_the_budget_allows(batch):
    step, limits = batch
    limits = replace(limits, catch_up_tokens=1000)
    chunks = plan_catch_up(step.views, step.coverage, step.block_tables, limits)
    planned = {chunk.request.request_id: chunk.num_draft_tokens for chunk in chunks}
    for request in step.views:
        assert planned.get(request.request_id, 0) == num_draft_tokens(request, limits)
