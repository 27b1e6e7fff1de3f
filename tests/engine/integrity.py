"""Checks of the KV cache's books in a running engine: in every step, the scheduler's and the worker's."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

_planned: list[Any] = []


def install() -> None:
    """Makes every engine that is built from now on check its blocks in each step, and end if they are wrong.

    Slots for drafts are reserved whatever the proposer, so that giving them out and taking them back
    is part of what is checked. Scheduler and worker must be in this process.
    """
    from vllm_spec_plugin.v1.runner import SpecRunnerMixin
    from vllm_spec_plugin.v1.scheduling.scheduler import SpecScheduler

    schedule, update_states = SpecScheduler.schedule, SpecRunnerMixin._update_states

    def checked_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._blocks.kv_proposer = self._blocks.kv_proposer or 0
        self.check_integrity()
        output = schedule(self, *args, **kwargs)
        self.check_integrity()
        excess = unknown_excess(self)
        assert not excess, f"held beyond their texts, and would never be given back: blocks of {excess}"
        _planned[:] = [self]
        return output

    def checked_update_states(self: Any, scheduler_output: Any) -> Any:
        result = update_states(self, scheduler_output)
        [scheduler] = _planned
        check_tables(scheduler, self)
        check_writes(scheduler, self, scheduler_output)
        return result

    mock.patch.object(SpecScheduler, "schedule", checked_schedule).start()
    mock.patch.object(SpecRunnerMixin, "_update_states", checked_update_states).start()


def unknown_excess(scheduler: Any) -> list[str]:
    """Requests that hold blocks beyond their texts, and are not among those that these are taken back from."""
    manager = scheduler.kv_cache_manager
    if not scheduler._manages_kv:
        return []
    return [
        request.request_id
        for request in scheduler.running
        if request.request_id not in manager.oversized
        for held, size in zip(manager.num_blocks(request.request_id), manager.block_sizes, strict=True)
        if held > -(-request.num_tokens // size)
    ]


def check_tables(scheduler: Any, runner: Any) -> None:
    """Every running request has the same blocks here and there, and in its row of the batch."""
    batch = runner.input_batch
    for request in scheduler.running:
        request_id = request.request_id
        planned = scheduler.kv_cache_manager.get_block_ids(request_id)
        held = _in_use(runner.requests[request_id].block_ids, planned)
        assert held == planned, f"{request_id}: the scheduler has blocks {planned}, the worker {held}"
        row = batch.req_id_to_index.get(request_id)
        if row is not None:
            tables = batch.block_table.block_tables
            rows = [t.block_table.np[row, : t.num_blocks_per_row[row]].tolist() for t in tables]
            in_row = _in_use(rows, planned)
            assert in_row == planned, f"{request_id}: the scheduler has blocks {planned}, the batch {in_row}"


def _in_use(tables: Sequence[list[int]], planned: Sequence[list[int]]) -> tuple[list[int], ...]:
    """The worker's tables; it still has the blocks that left a sliding window, where the scheduler has null blocks."""
    return tuple(
        [mine and block for block, mine in zip(blocks, ours, strict=False)] + blocks[len(ours) :]
        for blocks, ours in zip(tables, planned, strict=True)
    )


def check_writes(scheduler: Any, runner: Any, scheduler_output: Any) -> None:
    """No block may be written for two requests in a step, and drafts only go to blocks of one owner."""
    manager = scheduler.kv_cache_manager
    writers: dict[int, str] = {}
    for request_id in scheduler_output.num_scheduled_tokens:
        length = scheduler.requests[request_id].num_tokens
        start = runner.requests[request_id].num_computed_tokens
        for group, size in zip(manager.get_blocks(request_id).blocks, manager.block_sizes, strict=True):
            for block in group[start // size :]:
                assert not block.is_null
                other = writers.setdefault(block.block_id, request_id)
                assert other == request_id, f"block {block.block_id} is written for {other} and {request_id}"
            for block in group[-(-length // size) :]:
                assert manager.block_pool.is_block_writable(block), f"{block} of {request_id} is for drafts"
