"""Cuts the worker's block tables when the scheduler rolls blocks back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vllm_spec_plugin.messages import TableLengths

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner


def cut_block_tables(runner: "GPUModelRunner", rollback: Mapping[str, TableLengths]) -> None:
    """Cuts requests' block tables to the lengths that the scheduler rolled them back to.

    vLLM's runner only appends to its tables: without this, new blocks would follow freed ones, and KV be written to
    other requests' blocks. Call it before vLLM appends the step's new blocks; it also cuts tables of requests that are
    not in the step.

    Args:
        runner: vLLM's model runner, changed in place.
        rollback: per request id the lengths of its tables.
    """
    tables = runner.input_batch.block_table
    for request_id, lengths in rollback.items():
        block_ids = runner.requests[request_id].block_ids
        row = runner.input_batch.req_id_to_index.get(request_id)
        for group, length in enumerate(lengths):
            if length is None:
                continue
            del block_ids[group][length:]
            if row is not None:
                table = tables[group]
                # Zeros are what vLLM leaves where a row has no block.
                table.block_table.np[row, length : table.num_blocks_per_row[row]] = 0
                table.num_blocks_per_row[row] = min(length, table.num_blocks_per_row[row])
