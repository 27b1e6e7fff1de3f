"""Computes positions and KV cache slots of the tokens of a step's draft passes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.jit import compiled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@compiled
def _slot(table: Int32s, row: int, position: int, size: int) -> int:
    # A request that does not get so far may have no block there.
    block = min(position // size, table.shape[1] - 1)
    return int(np.int64(table[row, block]) * size + position % size)


@compiled
def _fill_slots(
    chunks: Int64s, num_drafting: int, num_steps: int, table: Int32s, size: int, slots: Int64s, slots_ahead: Int64s
) -> None:
    """Fills the slots of one KV group."""
    at = 0
    for row, start, stop in chunks:
        for position in range(start, stop):
            slots[at] = _slot(table, row, position, size)
            at += 1
    for step in range(num_steps):
        for i in range(num_drafting):
            slots_ahead[step * num_drafting + i] = _slot(table, chunks[i, 0], chunks[i, 2] + step, size)


@compiled
def _fill(chunks: Int64s, num_drafting: int, num_steps: int, texts: Int32s, longs: Int64s, ints: Int32s) -> None:
    """Fills everything but the slots, in the order in which `pass_inputs` splits both arrays."""
    n, num_tokens = chunks.shape[0], (chunks[:, 2] - chunks[:, 1]).sum()
    ints[num_tokens] = at = 0
    for i in range(n):
        row, start, stop = chunks[i]
        for position in range(start, stop):
            ints[at] = texts[row, position]
            longs[at] = position
            at += 1
        ints[num_tokens + 1 + i] = at
        ints[num_tokens + 1 + n + i] = stop
        longs[num_tokens + i] = at - 1
        longs[num_tokens + n + i] = row
    ahead, stops_ahead = num_tokens + 2 * n, num_tokens + 1 + 2 * n
    for step in range(num_steps):
        for i in range(num_drafting):
            position, at = chunks[i, 2] + step, step * num_drafting + i
            longs[ahead + at] = position
            ints[stops_ahead + at] = position + 1


@dataclass(frozen=True)
class PassInputs:
    """The inputs of a step's passes: n chunks of num_tokens tokens in all, of which the first m get drafts.

    Attributes:
        token_ids: [num_tokens] int32.
        positions: [num_tokens] int64.
        slots: [num_groups, num_tokens] int64, in the KV cache.
        last: [n] int64, index in `token_ids` of each chunk's last token.
        query_start: [n + 1] int32, index of each chunk's first token, then num_tokens.
        query_start_cpu: `query_start` on the CPU.
        stops: [n] int32, position after each chunk's last token.
        rows: [n] int64, rows of the batch.
        positions_ahead: [num_steps, m] int64, positions of the draft tokens.
        slots_ahead: [num_groups, num_steps, m] int64, slots of the draft tokens.
        stops_ahead: [num_steps, m] int32, positions after the draft tokens.
        longest_chunk: maximum tokens of one chunk.
        longest_text: maximum of `stops`.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    query_start: torch.Tensor
    query_start_cpu: torch.Tensor
    stops: torch.Tensor
    rows: torch.Tensor
    positions_ahead: torch.Tensor
    slots_ahead: torch.Tensor
    stops_ahead: torch.Tensor
    longest_chunk: int
    longest_text: int


def pass_inputs(
    chunks: Sequence[tuple[int, int, int]],
    num_drafting: int,
    num_steps: int,
    texts: Int32s,
    tables: Sequence[Int32s],
    block_sizes: Sequence[int],
    device: torch.device,
) -> PassInputs:
    """Computes the inputs of a step's passes, with two transfers to the device.

    Args:
        chunks: per chunk its row in the batch, and the positions of its first and after its last token.
        num_drafting: m, the number of first chunks that get drafts.
        num_steps: maximum passes after the first.
        texts: [num_rows, any], tokens by row of the batch.
        tables: per KV group [num_rows, max_blocks], block tables by row of the batch.
        block_sizes: tokens per block of each KV group.
        device: device of the draft model.
    """
    n, m = len(chunks), num_drafting
    counts = [stop - start for _, start, stop in chunks]
    num_tokens, num_ahead = sum(counts), num_steps * m
    num_groups, others = len(tables), num_tokens + 2 * n + num_ahead
    longs = np.empty(others + num_groups * (num_tokens + num_ahead), dtype=np.int64)
    ints = np.empty(num_tokens + 2 * n + 1 + num_ahead, dtype=np.int32)
    as_array = np.array(chunks)
    _fill(as_array, m, num_steps, texts, longs, ints)
    slots = longs[others : others + num_groups * num_tokens].reshape(num_groups, num_tokens)
    slots_ahead = longs[others + num_groups * num_tokens :].reshape(num_groups, num_ahead)
    for group, (table, size) in enumerate(zip(tables, block_sizes, strict=True)):
        _fill_slots(as_array, m, num_steps, table, size, slots[group], slots_ahead[group])
    long_tensor, int_tensor = (torch.from_numpy(array).to(device, non_blocking=True) for array in (longs, ints))
    positions, last, rows, positions_ahead, all_slots, all_ahead = long_tensor.split(
        (num_tokens, n, n, num_ahead, num_groups * num_tokens, num_groups * num_ahead)
    )
    token_ids, query_start, stops, stops_ahead = int_tensor.split((num_tokens, n + 1, n, num_ahead))
    return PassInputs(
        token_ids=token_ids,
        positions=positions,
        slots=all_slots.view(num_groups, num_tokens),
        last=last,
        query_start=query_start,
        query_start_cpu=torch.from_numpy(ints[num_tokens : num_tokens + n + 1]),
        stops=stops,
        rows=rows,
        positions_ahead=positions_ahead.view(num_steps, m),
        slots_ahead=all_ahead.view(num_groups, num_steps, m),
        stops_ahead=stops_ahead.view(num_steps, m),
        longest_chunk=max(counts),
        longest_text=max(stop for _, _, stop in chunks),
    )
