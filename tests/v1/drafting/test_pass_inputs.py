"""Positions, slots and lengths of a step's passes."""

import random

import numpy as np
import torch

from vllm_spec_plugin.v1.drafting.pass_inputs import pass_inputs

SIZE, NUM_ROWS, MOST_BLOCKS = 4, 6, 5


def slot(table, row, position):
    return int(table[row, position // SIZE]) * SIZE + position % SIZE


def scene(seed):
    chance = random.Random(seed)
    texts = np.array(chance.choices(range(1000), k=NUM_ROWS * SIZE * MOST_BLOCKS), dtype=np.int32)
    table = np.array(chance.sample(range(100), NUM_ROWS * MOST_BLOCKS), dtype=np.int32)
    chunks = []
    for row in chance.sample(range(NUM_ROWS), chance.randint(1, NUM_ROWS)):
        start, stop = sorted(chance.sample(range(SIZE * MOST_BLOCKS - 3), 2))
        chunks.append((row, start, stop))
    return chunks, chance.randint(0, len(chunks)), texts.reshape(NUM_ROWS, -1), table.reshape(NUM_ROWS, -1)


def test_inputs_are_those_of_the_chunks():
    for seed in range(50):
        chunks, num_drafting, texts, table = scene(seed)
        inputs = pass_inputs(chunks, num_drafting, 3, texts, [table], [SIZE], torch.device("cpu"))
        places = [(row, position) for row, start, stop in chunks for position in range(start, stop)]
        assert inputs.token_ids.tolist() == [texts[place] for place in places]
        assert inputs.positions.tolist() == [position for _, position in places]
        assert inputs.slots.tolist() == [[slot(table, *place) for place in places]]
        ends = np.cumsum([0] + [stop - start for _, start, stop in chunks]).tolist()
        assert inputs.query_start.tolist() == inputs.query_start_cpu.tolist() == ends
        assert inputs.last.tolist() == [end - 1 for end in ends[1:]]
        assert inputs.rows.tolist() == [row for row, _, _ in chunks]
        assert inputs.stops.tolist() == [stop for _, _, stop in chunks]
        assert inputs.longest_text == max(stop for _, _, stop in chunks)
        assert inputs.longest_chunk == max(stop - start for _, start, stop in chunks)
        drafting = chunks[:num_drafting]
        for step in range(3):
            assert inputs.positions_ahead[step].tolist() == [stop + step for _, _, stop in drafting]
            assert inputs.slots_ahead[0, step].tolist() == [slot(table, row, stop + step) for row, _, stop in drafting]
            assert inputs.stops_ahead[step].tolist() == [stop + step + 1 for _, _, stop in drafting]


def test_kinds_of_numbers_are_those_that_kernels_take():
    chunks, _, texts, table = scene(0)
    inputs = pass_inputs(chunks, 1, 2, texts, [table], [SIZE], torch.device("cpu"))
    ints = [inputs.token_ids, inputs.query_start, inputs.stops, inputs.stops_ahead]
    longs = [inputs.positions, inputs.slots, inputs.last, inputs.rows, inputs.positions_ahead, inputs.slots_ahead]
    assert {tensor.dtype for tensor in ints} == {torch.int32}
    assert {tensor.dtype for tensor in longs} == {torch.int64}


def test_places_beyond_the_last_block_are_not_looked_up():
    table = np.arange(MOST_BLOCKS, dtype=np.int32)[None]
    texts = np.zeros((1, SIZE * MOST_BLOCKS), np.int32)
    stop = SIZE * MOST_BLOCKS
    inputs = pass_inputs([(0, stop - 1, stop)], 1, 2, texts, [table], [SIZE], torch.device("cpu"))
    assert inputs.positions_ahead.tolist() == [[stop], [stop + 1]]
