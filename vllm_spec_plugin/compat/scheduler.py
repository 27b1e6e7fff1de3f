"""vLLM's scheduler: the class to build on, one of its switches, and its messages to the workers."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

__all__ = [
    "DRAFT_LENGTHS",
    "DRAFT_SCOPES",
    "DRAFT_TREES",
    "KV_FORKS",
    "KV_ROLLBACK",
    "STEP_COUNTERS",
    "STEP_PROBE",
    "Scheduler",
    "append_blocks",
    "stop_padding",
]

# Set on the runner's output, which is pickled with its attributes on its way to the scheduler.
STEP_COUNTERS = "vllm_spec_plugin_counters"
# As that: request id to the number of branches and the depth of the tree that was drafted for it.
DRAFT_TREES = "vllm_spec_plugin_draft_trees"
# As that, once: (tokens, seconds) of steps that were run at start-up.
STEP_PROBE = "vllm_spec_plugin_step_probe"
# Set on the scheduler's output, on its way to the workers: request id to the ids of the blocks of its forks, and how
# many of them make one.
KV_FORKS = "vllm_spec_plugin_kv_forks"
# As that: request id to the number of tokens to draft; those without are not drafted for.
DRAFT_LENGTHS = "vllm_spec_plugin_draft_lengths"
# As that: of new requests, request id to the scope that its text is shared in; None is nobody's but its own.
DRAFT_SCOPES = "vllm_spec_plugin_draft_scopes"
# As that: request id to the length its block tables are cut to.
KV_ROLLBACK = "vllm_spec_plugin_kv_rollback"


def stop_padding(scheduler: Any) -> None:
    """Stops vLLM from giving a request that has no drafts yet K placeholders to reject.

    It does so to keep CUDA graphs uniform; here draft lengths differ anyway, and the placeholders would
    count as rejected drafts. It pads only while this table, batch size to draft length, is absent.
    """
    scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * (scheduler.max_num_running_reqs + 1)


def append_blocks(scheduler_output: Any, block_ids: dict[str, tuple[list[int], ...]]) -> None:
    """Adds blocks to the end of requests' tables in a step's message to the workers, whatever it says of them so far.

    Args:
        scheduler_output: vLLM's `SchedulerOutput`, changed in place.
        block_ids: per scheduled request and KV group, the added ones.
    """
    for new in scheduler_output.scheduled_new_reqs:
        _extend(new.block_ids, block_ids.get(new.req_id))
    cached = scheduler_output.scheduled_cached_reqs
    for i, request_id in enumerate(cached.req_ids):
        if cached.new_block_ids[i] is None:
            cached.new_block_ids[i] = block_ids.get(request_id)
        else:
            _extend(cached.new_block_ids[i], block_ids.get(request_id))


def _extend(tables: tuple[list[int], ...], added: tuple[list[int], ...] | None) -> None:
    if added is not None:
        for table, ids in zip(tables, added, strict=True):
            table.extend(ids)
