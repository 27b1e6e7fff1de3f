"""KV blocks that a scheduled step allocates to requests; for schedulers and workers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import SchedulerOutput


def added_blocks(scheduler_output: "SchedulerOutput") -> Iterator[tuple[str, int, tuple[list[int], ...], bool]]:
    """Yields per request that a step gives blocks its id, its computed tokens, the blocks per KV group, and whether it
    begins, or begins again after preemption: then these are all its blocks.
    """
    for new in scheduler_output.scheduled_new_reqs:
        yield new.req_id, new.num_computed_tokens, new.block_ids, True
    cached = scheduler_output.scheduled_cached_reqs
    for request_id, computed, added in zip(
        cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
    ):
        if added is not None:
            yield request_id, computed, added, request_id in cached.resumed_req_ids
