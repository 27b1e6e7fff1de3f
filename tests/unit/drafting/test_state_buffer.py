"""Hidden states are kept by position until a head has computed them; the numbers are the positions they stand for."""

import pytest
import torch

from vllm_spec_plugin.drafting.state_buffer import StateBuffer


def states(first: int, count: int, mark: int = 0) -> torch.Tensor:
    """[count, 2], positions from `first`, and a mark."""
    return torch.stack([torch.arange(first, first + count), torch.full((count,), mark)], -1)


def kept(buffer: StateBuffer, request_id: str, start: int, stop: int) -> list[list[int]]:
    """Position and mark of each state."""
    parts: list[list[int]] = torch.cat(buffer.take(request_id, start, stop)).tolist()
    return parts


def test_positions_computed_again_replace_earlier_ones() -> None:
    buffer = StateBuffer(100)
    buffer.add(torch.cat([states(0, 3), states(5, 4)]), [("a", 0, 3), ("b", 5, 4)])
    # Of four positions of b two had rejected drafts.
    buffer.add(torch.cat([states(3, 1, 1), states(7, 3, 1)]), [("a", 3, 1), ("b", 7, 3)])
    assert buffer.span("a") == (0, 4)
    assert buffer.span("b") == (5, 10)
    assert kept(buffer, "b", 6, 9) == [[6, 0], [7, 1], [8, 1]]
    assert kept(buffer, "a", 2, 4) == [[2, 0], [3, 1]]


def test_states_before_a_gap_are_dropped() -> None:
    buffer = StateBuffer(100)
    buffer.add(states(0, 3), [("a", 0, 3)])
    buffer.add(states(6, 2), [("a", 6, 2)])
    assert buffer.span("a") == (6, 8)


def test_computed_and_forgotten_states_are_dropped() -> None:
    buffer = StateBuffer(100)
    for first in range(0, 6, 2):
        buffer.add(states(first, 2), [("a", first, 2)])
    buffer.drop_before("a", 3)
    assert buffer.span("a") == (2, 6)
    buffer.drop_before("a", 6)
    assert buffer.span("a") == (0, 0)
    buffer.add(states(6, 2), [("a", 6, 2)])
    buffer.forget("a")
    buffer.forget("never seen")
    assert buffer.span("a") == (0, 0)


@pytest.mark.parametrize("count", [1, 100])
def test_the_longest_request_loses_its_oldest_states(count: int) -> None:
    buffer = StateBuffer(2 * count)
    for first in range(4):
        buffer.add(states(first * count, count), [("a", first * count, count)])
    buffer.add(states(0, count), [("b", 0, count)])
    assert buffer.span("a") == (count, 4 * count)
    assert buffer.span("b") == (0, count)


@pytest.mark.parametrize("enough", [60, 1000])
def test_a_buffer_is_full_while_another_step_finds_room(enough: int) -> None:
    """Also where many requests together wait for more positions than are kept."""
    buffer = StateBuffer(100)
    num_steps = 0
    while not buffer.is_full(enough) and num_steps < 9:
        buffer.add(states(num_steps, 30), [(f"request {num_steps}", 0, 30)])
        num_steps += 1
    assert buffer.num_tokens == 30 * num_steps == {60: 60, 1000: 120}[enough]
    buffer.add(states(0, 80), [("other", 0, 80)])
    assert buffer.num_tokens == 30 * num_steps + 80


def test_a_prompt_is_copied_from_its_step() -> None:
    """Else one token of another request would keep the states of the whole step."""
    step = torch.cat([states(0, 200), states(9, 1)])
    buffer = StateBuffer(1000)
    buffer.add(step, [("prompt", 0, 200), ("text", 9, 1)])
    for request_id, start, stop in (("prompt", 0, 200), ("text", 9, 10)):
        [part] = buffer.take(request_id, start, stop)
        assert part.untyped_storage().nbytes() == part.nbytes
        assert part[:, 0].tolist() == list(range(start, stop))
