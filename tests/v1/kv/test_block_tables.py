"""The worker's tables get as short as the scheduler made its own."""

from types import SimpleNamespace

import pytest
import torch
from vllm.v1.worker.block_table import MultiGroupBlockTable

from vllm_spec_plugin.v1.kv.block_tables import cut_block_tables


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
    """Cut places hold the null block. A group without positions is left alone; so is the batch of one outside of it."""
    cut_block_tables(runner, {"a": (1, 2), "b": (1, None)})
    assert runner.requests["b"].block_ids == ([7], [9, 10])
    assert runner.requests["a"].block_ids == ([1], [4, 5])
    assert rows(runner) == [[1], [4, 5]]
    assert runner.input_batch.block_table[0].block_table.np[1, :4].tolist() == [1, 0, 0, 0]
    runner.input_batch.block_table.append_row(([11], [12]), 1)
    assert rows(runner) == [[1, 11], [4, 5, 12]]
