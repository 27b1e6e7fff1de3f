"""Checks of the KV cache's books in a running engine: in every step, the scheduler's and the worker's."""

from typing import Any
from unittest import mock

_planned: list[Any] = []


def install() -> None:
    """Makes every engine that is built from now on check its blocks in each step, and end if they are wrong.

    Slots for drafts are reserved whatever the proposer, so that giving them out and taking them back
    is part of what is checked. Scheduler and worker must be in this process.
    """
    from vllm_spec_plugin.scheduling.scheduler import SpecScheduler
    from vllm_spec_plugin.worker.runner import SpecRunnerMixin

    schedule, update_states = SpecScheduler.schedule, SpecRunnerMixin._update_states

    def checked_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.kv_proposer = self.kv_proposer or 0
        self.check_integrity()
        output = schedule(self, *args, **kwargs)
        self.check_integrity()
        _planned[:] = [self]
        return output

    def checked_update_states(self: Any, scheduler_output: Any) -> Any:
        result = update_states(self, scheduler_output)
        [scheduler] = _planned
        _check_tables(scheduler, self)
        _check_writes(scheduler, self, scheduler_output)
        return result

    mock.patch.object(SpecScheduler, "schedule", checked_schedule).start()
    mock.patch.object(SpecRunnerMixin, "_update_states", checked_update_states).start()


def _check_tables(scheduler: Any, runner: Any) -> None:
    """Every running request has the same blocks here and there, and in its row of the batch."""
    batch = runner.input_batch
    for request in scheduler.running:
        request_id = request.request_id
        planned = scheduler.kv_cache_manager.get_block_ids(request_id)
        held = tuple(runner.requests[request_id].block_ids)
        assert held == planned, f"{request_id}: the scheduler has blocks {planned}, the worker {held}"
        row = batch.req_id_to_index.get(request_id)
        if row is not None:
            tables = batch.block_table.block_tables
            in_row = tuple(t.block_table.np[row, : t.num_blocks_per_row[row]].tolist() for t in tables)
            assert in_row == planned, f"{request_id}: the scheduler has blocks {planned}, the batch {in_row}"


def _check_writes(scheduler: Any, runner: Any, scheduler_output: Any) -> None:
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
