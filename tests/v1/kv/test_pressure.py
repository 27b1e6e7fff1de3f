"""Drafts are given up before any text goes without blocks, and only then."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import examples
from vllm_spec_plugin.v1.kv.pressure import Demand, keep_drafts

relaxed = settings(max_examples=examples(50, 500))


def blocks(num_tokens, size):
    return -(-num_tokens // size)


def decoding(held, num_tokens, num_drafts):
    """A request whose text is computed but for its last token."""
    return Demand((held,), num_tokens, 1, num_drafts)


@st.composite
def steps(draw):
    """Block sizes, free blocks and requests that hold what vLLM may have left them after a rollback."""
    sizes = draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=2))
    demands = []
    for _ in range(draw(st.integers(1, 5))):
        num_tokens = draw(st.integers(1, 40))
        if draw(st.booleans()):
            num_new_tokens, num_drafts = 1, draw(st.integers(0, 5))
            reach = num_tokens - 1 + draw(st.integers(0, 1 + num_drafts))
        else:
            num_new_tokens, num_drafts = draw(st.integers(1, num_tokens)), 0
            reach = num_tokens - num_new_tokens
        held = tuple(blocks(reach, size) for size in sizes)
        demands.append(Demand(held, num_tokens, num_new_tokens, num_drafts))
    return demands, sizes, draw(st.integers(0, 12)), draw(st.integers(1, 16))


def fits(demands, kept, sizes, num_free, share):
    """Whether all find blocks, taking them one after the other, each with at most `share` tokens of text."""
    for demand, num_drafts in zip(demands, kept, strict=True):
        for held, size in zip(demand.num_blocks, sizes, strict=True):
            # What is beyond text and kept drafts was given back before.
            num_free += max(0, held - blocks(demand.num_tokens + num_drafts, size))
    for demand, num_drafts in zip(demands, kept, strict=True):
        end = demand.num_tokens - max(0, demand.num_new_tokens - share) + num_drafts
        for held, size in zip(demand.num_blocks, sizes, strict=True):
            num_free -= max(0, blocks(end, size) - min(held, blocks(demand.num_tokens + num_drafts, size)))
    return num_free >= 0


@relaxed
@given(steps())
def test_drafts_take_no_block_from_a_text(step):
    """Whatever share of the budget each text gets: who fits without drafts fits with those that are kept."""
    demands, sizes, num_free, budget = step
    kept = keep_drafts(demands, sizes, num_free, budget)
    nothing = [0] * len(demands)
    assert all(0 <= n <= demand.num_drafts for n, demand in zip(kept, demands, strict=True))
    if fits(demands, nothing, sizes, num_free, budget):
        for share in range(1, budget + 1):
            assert fits(demands, kept, sizes, num_free, share)


@relaxed
@given(steps())
def test_no_draft_is_cut_without_need(step):
    """One more token of any request's drafts, and the step would not fit."""
    demands, sizes, num_free, budget = step
    kept = keep_drafts(demands, sizes, num_free, budget)
    for i, demand in enumerate(demands):
        if kept[i] < demand.num_drafts:
            # Those after it may have been served with what was too little for it.
            more = [*kept[:i], kept[i] + 1, *[0] * (len(demands) - i - 1)]
            assert not fits(demands, more, sizes, num_free, budget)


def test_a_prompt_that_is_computed_in_chunks_asks_for_its_next_chunk_only():
    prompt = Demand((2,), num_tokens=100, num_new_tokens=92, num_drafts=0)
    assert keep_drafts([decoding(2, 8, 3), prompt], [4], 3, token_budget=8) == [3, 0]
    assert keep_drafts([decoding(2, 8, 3), prompt], [4], 2, token_budget=8) == [0, 0]
