"""Hidden states are kept by position until a head has computed them; the numbers are the positions they stand for."""

import torch

from vllm_spec_plugin.v1.drafting.state_buffer import StateBuffer

FAR = 10**6


def buffer_of(num_rows: int, max_len: int = FAR) -> StateBuffer:
    return StateBuffer(torch.empty(num_rows, 2, dtype=torch.int64), max_len)


def states(first: int, count: int, mark: int = 0) -> torch.Tensor:
    """[count, 2], positions from `first`, and a mark."""
    return torch.stack([torch.arange(first, first + count), torch.full((count,), mark)], -1)


def kept(buffer: StateBuffer, request_id: str, start: int, stop: int) -> list[list[int]]:
    """Position and mark of each state."""
    found: list[list[int]] = buffer.take([(request_id, start, stop - start)]).tolist()
    return found


def test_positions_computed_again_replace_earlier_ones() -> None:
    buffer = buffer_of(100)
    buffer.add(torch.cat([states(0, 3), states(5, 4)]), [("a", 0, 3), ("b", 5, 4)])
    # Of four positions of b two had rejected drafts.
    buffer.add(torch.cat([states(3, 1, 1), states(7, 3, 1)]), [("a", 3, 1), ("b", 7, 3)])
    assert buffer.span("a") == (0, 4)
    assert buffer.span("b") == (5, 10)
    assert kept(buffer, "b", 6, 9) == [[6, 0], [7, 1], [8, 1]]
    assert kept(buffer, "a", 2, 4) == [[2, 0], [3, 1]]
    assert buffer.take([("b", 9, 1), ("a", 0, 2)])[:, 0].tolist() == [9, 0, 1]
    buffer.add(states(2, 2, 2), [("b", 2, 2)])
    assert kept(buffer, "b", *buffer.span("b")) == [[2, 2], [3, 2]]


def test_a_request_with_a_gap_is_lost_until_it_is_forgotten() -> None:
    buffer = buffer_of(10)
    buffer.add(states(0, 3), [("a", 0, 3)])
    for first in (6, 8):
        buffer.add(torch.cat([states(first, 2), states(first, 2)]), [("a", first, 2), ("b", first, 2)])
        assert buffer.span("a") == (0, 0)
    assert kept(buffer, "b", 6, 10) == [[6, 0], [7, 0], [8, 0], [9, 0]]
    assert buffer.num_lost == 1
    buffer.forget("a")
    buffer.add(states(10, 2), [("a", 10, 2)])
    assert buffer.span("a") == (10, 12)


def test_where_all_rows_are_taken_the_longest_request_is_lost() -> None:
    buffer = buffer_of(10)
    buffer.add(torch.cat([states(0, 6), states(0, 2)]), [("long", 0, 6), ("short", 0, 2)])
    buffer.add(torch.cat([states(2, 1), states(6, 1), states(0, 3)]), [("short", 2, 1), ("long", 6, 1), ("new", 0, 3)])
    assert [buffer.span(name) for name in ("long", "short", "new")] == [(0, 0), (0, 3), (0, 3)]
    assert kept(buffer, "short", 0, 3) == [[0, 0], [1, 0], [2, 0]]
    assert kept(buffer, "new", 0, 3) == [[0, 0], [1, 0], [2, 0]]
    assert buffer.num_lost == 1
    # More than there is memory.
    buffer.add(states(0, 11), [("huge", 0, 11)])
    assert [buffer.span(name) for name in ("huge", "short", "new")] == [(0, 0), (0, 3), (0, 3)]


def test_states_beyond_the_heads_context_are_not_kept() -> None:
    buffer = buffer_of(100, max_len=5)
    buffer.add(torch.cat([states(3, 4), states(9, 2), states(0, 1)]), [("a", 3, 4), ("b", 9, 2), ("c", 0, 1)])
    buffer.add(states(7, 2), [("a", 7, 2)])
    assert [buffer.span(name) for name in ("a", "b", "c")] == [(3, 5), (0, 0), (0, 1)]
    assert kept(buffer, "c", 0, 1) == [[0, 0]]
