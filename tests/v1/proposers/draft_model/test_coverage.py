"""Below a watermark, every slot holds the draft's state of the text that is there."""

from random import Random
from typing import NamedTuple

import numpy as np
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.sizes import examples
from tests.v1.proposers.draft_model.pool import DraftKV, Pool, Request
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import CatchUpLimits, num_draft_tokens, plan_catch_up
from vllm_spec_plugin.v1.proposers.draft_model.coverage import DraftCoverage

BLOCK_SIZE = 4
# Of the random steps: ends of blocks are where it can go wrong.
SMALL_BLOCKS = (2,)
NUM_BLOCKS = 24
MAX_LEN = 30
MOST = 3
TEXT = np.arange(100, 118, dtype=np.int32)
SETTINGS = settings(max_examples=examples(200, 1000), stateful_step_count=30, deadline=None, derandomize=True)


def test_a_position_is_covered_if_it_is_in_every_group():
    coverage = DraftCoverage(10, [BLOCK_SIZE, 2 * BLOCK_SIZE])
    tables = [np.array([5, 2, 7, 0], np.int32), np.array([1, 3], np.int32)]
    coverage.computed("a", 0, 14, tables)
    assert coverage.blocks_filled(0, 14, tables) == [5, 2, 7, 1]
    assert coverage.watermark("b", TEXT[:15], tables) == 8
    coverage.computed("a", 14, 16, tables)
    assert coverage.watermark("b", TEXT[:17], tables) == 16
    coverage.allocated("b", 1, [3], 1)
    assert coverage.watermark("b", TEXT[:17], tables) == 8
    coverage.allocated("a", 1, [3], 1)
    assert coverage.watermark("a", TEXT[:17], tables) == 8


# Mostly the same: beginnings are often shared, and a text often goes on as was drafted long ago.
TOKENS = [0, 0, 0, 1]
tokens = st.sampled_from(TOKENS)


class Plan(NamedTuple):
    """Fate of one request in a step."""

    keeps_drafts: bool  # They are verified if it is served; else they are dropped.
    rolls_back: bool  # Blocks behind text and drafts are taken back.
    freed_at: int  # Where among the free blocks they go.
    is_served: bool  # The target computes something of it.
    num_prompt_tokens: int  # Tokens of its prompt that are computed if that is not through.
    num_accepted: int  # Drafts that are accepted, or as many as there are.
    token: int  # What follows them.
    reserve: int  # Tokens beyond its text that it gets slots for.
    num_draft_tokens: int  # K.


MOSTLY = st.sampled_from([True, True, True, False])

plans = st.builds(
    Plan,
    keeps_drafts=st.booleans(),
    rolls_back=MOSTLY,
    freed_at=st.sampled_from([0, NUM_BLOCKS]),
    is_served=MOSTLY,
    num_prompt_tokens=st.integers(1, 12),
    num_accepted=st.integers(0, 5),
    token=tokens,
    reserve=st.sampled_from([0, 1, 5]),
    num_draft_tokens=st.sampled_from([0, 0, 1, 3, 5, 5]),
)


# With this seed the examples notice each coverage below that is wrong.
@seed(0)
class Steps(RuleBasedStateMachine):
    """Requests that come, are drafted for, grow, give blocks back, are preempted, resume and go, in any order."""

    coverage_cls: type[DraftCoverage] = DraftCoverage
    block_sizes: tuple[int, ...] = SMALL_BLOCKS
    num_blocks = NUM_BLOCKS

    def __init__(self):
        super().__init__()
        self.coverage = self.coverage_cls(self.num_blocks, self.block_sizes)
        self.pool = Pool(self.num_blocks, self.coverage)
        self.kv = DraftKV(self.num_blocks, self.block_sizes)
        self.running: list[Request] = []
        self.preempted: list[Request] = []
        self.texts: list[list[int]] = []
        self.count = 0

    @precondition(lambda self: len(self.running) < MOST)
    @rule(
        length=st.integers(0, 20),
        new=st.lists(tokens, min_size=1, max_size=9),
        of=st.integers(0, 5),
        first=st.integers(1, 30),
    )
    def admit(self, length, new, of, first):
        """A prompt that is new, or goes on from a beginning of a text seen before."""
        texts = [*self.texts, *(request.text for request in self.running), []]
        old = texts[of % len(texts)][:length]
        self.count += 1
        request = Request(f"r{self.count}", old + new)
        if self.pool.admit(request, min(first, len(request.text))):
            self.running.append(request)

    @precondition(lambda self: self.preempted and len(self.running) < MOST)
    @rule(index=st.integers(0, 3), first=st.integers(1, 30))
    def resume(self, index, first):
        request = self.preempted[index % len(self.preempted)]
        if self.pool.admit(request, min(first, len(request.text))):
            self.preempted.remove(request)
            self.running.append(request)

    @precondition(lambda self: self.running)
    @rule(
        plans=st.lists(plans, min_size=MOST, max_size=MOST),
        draft_seed=st.integers(0, 1000),
        budget=st.sampled_from([3, 12, 40, 200]),
        max_len=st.sampled_from([MAX_LEN, MAX_LEN, MAX_LEN, 11]),
    )
    def step(self, plans, draft_seed, budget, max_len):
        """Applies a plan to each running request, then runs one of the draft's passes over all of them."""
        for request, plan in zip(self.running, plans, strict=False):
            if not plan.keeps_drafts:
                request.drafts = []
            if plan.rolls_back:
                self.pool.cut(request, len(request.text) + len(request.drafts), plan.freed_at)
            served = plan.is_served and self._serve(request, plan)
            self.pool.extend(request, len(request.text) + plan.reserve)
            request.k = 0 if request.in_prompt or not served else plan.num_draft_tokens
        self._draft(Random(draft_seed), CatchUpLimits(budget, max_len))

    def _serve(self, request, plan):
        """The target computes more of a prompt, or verifies drafts: some are kept, then comes another token."""
        stop = len(request.text)
        if request.in_prompt:
            stop = min(request.num_computed + plan.num_prompt_tokens, stop)
        reach = stop + len(request.drafts)
        if reach >= MAX_LEN or not self.pool.extend(request, reach):
            return False
        accepted = request.drafts[: plan.num_accepted]
        if stop == len(request.text):
            request.text += [*accepted, plan.token]
            request.drafts = []
        self.pool.computed(request, stop + len(accepted))
        return True

    def _draft(self, chance, limits):
        views = [request.view(row, self.block_sizes) for row, request in enumerate(self.running)]
        tables = [request.arrays for request in self.running]
        covered = [self.coverage.watermark(v.request_id, v.token_ids, tables[v.row]) for v in views]
        chunks = plan_catch_up(views, self.coverage, lambda row: tables[row], limits)
        self._check_plan(views, covered, tables, chunks, limits)
        self.kv.compute(chunks, [tables[chunk.request.row] for chunk in chunks])
        for chunk in chunks:
            request, blocks = self.running[chunk.request.row], tables[chunk.request.row]
            assert self.kv.num_right(blocks, request.text[: chunk.stop]) == chunk.stop
            fed = []
            if chunk.num_draft_tokens:
                request.drafts = chance.choices(TOKENS, k=chunk.num_draft_tokens)
                fed = request.drafts[:-1]
                for position in range(chunk.stop, chunk.stop + len(fed)):
                    self.kv.write(blocks, request.text + fed, position)
            self.coverage.computed(request.request_id, chunk.start, chunk.stop, blocks, fed)

    def _check_plan(self, views, covered, tables, chunks, limits):
        """Plans keep to the budget, compute no slot twice, and draft for whoever can be if the budget allows."""
        planned = {chunk.request.row: chunk for chunk in chunks}
        assert len(planned) == len(chunks)
        assert sum(chunk.stop - chunk.start for chunk in chunks) <= limits.catch_up_tokens
        lengths = [chunk.num_draft_tokens for chunk in chunks]
        assert lengths == sorted(lengths, reverse=True)
        written: list[int] = []
        for chunk in chunks:
            view, length = chunk.request, len(chunk.request.token_ids)
            assert chunk.start < chunk.stop <= min(length, view.num_slots, limits.max_len)
            assert chunk.start >= min(covered[view.row], chunk.stop - 1), "computed in an earlier step"
            if chunk.num_draft_tokens:
                assert (chunk.stop, chunk.num_draft_tokens) == (length, num_draft_tokens(view, limits))
            # A last token's output is needed, whoever else computes that token.
            if chunk.stop - chunk.start > 1 or not chunk.num_draft_tokens:
                written += [self.kv.slots_of(tables[view.row], i)[0] for i in range(chunk.start, chunk.stop)]
        # Requests may share a block that none of them completes: where the context ends in it, and in groups.
        if len(self.block_sizes) == 1 and limits.max_len == MAX_LEN:
            assert len(written) == len(set(written)), "computed twice"
        if sum(len(view.token_ids) for view in views) <= limits.catch_up_tokens:
            wanted = {view.row: num_draft_tokens(view, limits) for view in views}
            assert {row: chunk.num_draft_tokens for row, chunk in planned.items() if chunk.num_draft_tokens} == {
                row: length for row, length in wanted.items() if length
            }

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, MOST - 1), comes_back=st.booleans())
    def leave(self, index, comes_back):
        request = self.running.pop(index % len(self.running))
        self.pool.leave(request)
        self.texts.append(list(request.text))
        if comes_back:
            self.preempted.append(request)

    @invariant()
    def everything_below_a_watermark_is_of_the_text(self):
        for request in self.running:
            blocks = request.arrays
            watermark = self.coverage.watermark(request.request_id, np.array(request.text, np.int32), blocks)
            # The newest token may have no slot yet: it gets one that is new.
            watermark = min(watermark, request.num_slots(self.block_sizes))
            assert watermark <= self.kv.num_right(blocks, request.text[:watermark])


TestSteps = Steps.TestCase
TestSteps.settings = SETTINGS


class StepsOfGroups(Steps):
    """The draft's layers are in several KV groups of one pool."""

    block_sizes = (2, 4, 2)
    num_blocks = 3 * NUM_BLOCKS


TestStepsOfGroups = StepsOfGroups.TestCase
TestStepsOfGroups.settings = SETTINGS
