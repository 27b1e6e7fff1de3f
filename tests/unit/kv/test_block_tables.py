"""The worker's tables get as short as the scheduler made its own."""

from types import SimpleNamespace

import pytest
import torch
from vllm.v1.worker.block_table import MultiGroupBlockTable

from vllm_spec_plugin.kv.block_tables import cut_block_tables


@pytest.fixture
def runner():
    """Two KV groups; request a is in the batch, b waits outside of it."""
    tables = MultiGroupBlockTable(2, 8, False, torch.device("cpu"), block_sizes=[4, 4], max_num_blocks=[8, 8])
    requests = {
        "a": SimpleNamespace(block_ids=([1, 2, 3], [4, 5, 6])),
        "b": SimpleNamespace(block_ids=([7, 8], [9, 10])),
    }
    tables.add_row(requests["a"].block_ids, 1)
    return SimpleNamespace(requests=requests, input_batch=SimpleNamespace(block_table=tables, req_id_to_index={"a": 1}))


def rows(runner):
    return [
        table.block_table.np[1, : table.num_blocks_per_row[1]].tolist()
        for table in runner.input_batch.block_table.block_tables
    ]


def test_request_and_row_are_cut_and_what_comes_next_follows_the_cut(runner):
    cut_block_tables(runner, {"a": (1, 2)})
    assert runner.requests["a"].block_ids == ([1], [4, 5])
    assert rows(runner) == [[1], [4, 5]]
    runner.input_batch.block_table.append_row(([11], [12]), 1)
    assert rows(runner) == [[1, 11], [4, 5, 12]]


def test_cut_places_hold_the_null_block(runner):
    cut_block_tables(runner, {"a": (1, 3)})
    tables = runner.input_batch.block_table
    assert tables[0].block_table.np[1, :4].tolist() == [1, 0, 0, 0]
    assert tables[1].block_table.np[1, :4].tolist() == [4, 5, 6, 0]


def test_a_group_without_positions_is_left_alone(runner):
    cut_block_tables(runner, {"a": (2, None)})
    assert runner.requests["a"].block_ids == ([1, 2], [4, 5, 6])
    assert rows(runner) == [[1, 2], [4, 5, 6]]


def test_a_request_outside_the_batch_is_cut_too(runner):
    cut_block_tables(runner, {"b": (1, 1)})
    assert runner.requests["b"].block_ids == ([7], [9])
    assert rows(runner) == [[1, 2, 3], [4, 5, 6]]
