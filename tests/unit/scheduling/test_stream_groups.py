"""Tokens leave in groups of one size, whatever the steps gave."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import examples
from vllm_spec_plugin.scheduling.stream import StreamGroups

SETTINGS = settings(max_examples=examples(100, 2000), deadline=None)
SIZE = 5
Groups = StreamGroups[tuple[str, int, int]]


def released(groups, request_id, steps):
    """What leaves after each step; the request ends with the last of them."""
    return [
        groups.release(request_id, step, is_last=number == len(steps)) for number, step in enumerate(steps, start=1)
    ]


@st.composite
def steps_of(draw, most=SIZE):
    """Tokens 0, 1, 2 and so on, cut into steps of at most `most`."""
    counts = draw(st.lists(st.integers(0, most), min_size=1, max_size=30))
    tokens = itertools.count()
    return [[next(tokens) for _ in range(count)] for count in counts]


@given(steps_of())
@SETTINGS
def test_before_the_end_groups_have_one_size_and_only_the_last_step_tells_how_the_rest_came(steps):
    *groups, rest = released(StreamGroups(SIZE), "a", steps)
    assert {len(group) for group in groups} <= {0, SIZE}
    assert len(rest) < SIZE + len(steps[-1])
    assert [*itertools.chain(*groups), *rest] == [*itertools.chain(*steps)]


@given(steps_of())
@SETTINGS
def test_a_group_leaves_as_soon_as_it_is_whole(steps):
    groups: StreamGroups[int] = StreamGroups(SIZE)
    seen = left = 0
    for step in steps:
        seen += len(step)
        left += len(groups.release("a", step, is_last=False))
        assert left == seen // SIZE * SIZE


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, SIZE), st.booleans()), max_size=40))
@SETTINGS
def test_requests_do_not_see_each_other(steps):
    """Each is released as if it were alone; one that ends may come again, and starts anew."""
    together: Groups = StreamGroups(SIZE)
    alone: dict[str, Groups] = {request_id: StreamGroups(SIZE) for request_id in "abc"}
    for number, (request_id, count, is_last) in enumerate(steps):
        tokens = [(request_id, number, place) for place in range(count)]
        expected = alone[request_id].release(request_id, tokens, is_last=is_last)
        assert together.release(request_id, tokens, is_last=is_last) == expected
        if is_last:
            alone[request_id] = StreamGroups(SIZE)
