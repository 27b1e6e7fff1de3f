"""Keys and values that a drafter lacks after rests, by request and block."""

import pytest

from vllm_spec_plugin.scheduling.drafter_gaps import DrafterGaps

NULL = 0


@pytest.fixture
def gaps() -> DrafterGaps:
    """Two KV groups, of blocks of 4 and of 8 tokens."""
    return DrafterGaps((4, 8), NULL)


def test_a_step_without_the_drafter_leaves_its_blocks_lacking(gaps: DrafterGaps) -> None:
    assert not gaps
    gaps.open("a", 9, ([1, 2, 3, NULL], [11, 12]))
    assert gaps
    assert gaps.first == {"a": 9}
    assert gaps.blocks == {3, 12}
    gaps.open("a", 13, ([1, 2, 3, 4], [11, 12]))
    assert gaps.first == {"a": 9}
    assert gaps.blocks == {3, 4, 12}


def test_who_finds_a_lacking_block_lacks_what_is_in_it(gaps: DrafterGaps) -> None:
    """The blocks 1, 2 and a part of 5 have 10 computed tokens; in the other group 21 and a part of 12 have them."""
    gaps.open("a", 4, ([1, 2, 3], [11, 12]))
    assert gaps.blocks == {2, 3, 11, 12}
    assert gaps.begun("b", 10, ([1, 2, 5, 6], [21, 12])) == {2, 12}
    assert gaps.first["b"] == 4
    assert gaps.blocks == {2, 3, 5, 6, 11, 12, 21}
    assert not gaps.begun("c", 10, ([1, 7, 8, 9], [13, 14]))
    assert "c" not in gaps.first
    gaps.begun("d", 0, ([2], [11]))
    assert gaps.blocks == {3, 5, 6, 12, 21}


def test_a_copy_lacks_what_its_block_lacks(gaps: DrafterGaps) -> None:
    gaps.open("a", 0, ([1, 2], [11]))
    gaps.copied([(1, 5), (6, 2)])
    assert gaps.blocks == {1, 5, 11}


def test_a_gap_is_filled_in_parts(gaps: DrafterGaps) -> None:
    """Up to token 10 of 12: the first two blocks of 4, and the first one of 8, are whole."""
    gaps.open("a", 2, ([1, 2, 3], [11, 12]))
    gaps.fill("a", 10, 12, ([1, 2, 3], [11, 12]))
    assert gaps.first == {"a": 10}
    assert gaps.blocks == {3, 12}
    gaps.fill("a", 12, 12, ([1, 2, 3], [11, 12]))
    assert not gaps


@pytest.mark.parametrize(
    ("room", "spans"),
    [
        (100, {"a": (2, 12), "b": (7, 10)}),
        (15, {"a": (2, 12), "b": (7, 10)}),
        (14, {"a": (2, 11), "b": (7, 10)}),
        (5, {"b": (7, 10)}),
        (4, {"b": (7, 10)}),
        (3, {"b": (7, 9)}),
        (2, {"b": (7, 8)}),
        (1, {}),
    ],
)
def test_the_shortest_gaps_are_filled_first_as_far_as_a_pass_has_room(
    gaps: DrafterGaps, room: int, spans: dict[str, tuple[int, int]]
) -> None:
    """Each request takes one token more; "c" has no gap, "d" may not draft."""
    gaps.open("a", 2, ([1], [11]))
    gaps.open("b", 7, ([1, 2], [12]))
    gaps.open("d", 0, ([1, 2], [13]))
    assert gaps.spans({"a": 12, "b": 10, "c": 5}, room) == spans
