"""vLLM's scheduler: the class to build on, and one of its switches."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

__all__ = ["STEP_COUNTERS", "Scheduler", "stop_padding"]

# Set on the runner's output, which is pickled with its attributes on its way to the scheduler.
STEP_COUNTERS = "vllm_spec_plugin_counters"


def stop_padding(scheduler: Any) -> None:
    """Stops vLLM from giving a request that has no drafts yet K placeholders to reject.

    It does so to keep CUDA graphs uniform; here draft lengths differ anyway, and the placeholders would
    count as rejected drafts. It pads only while this table, batch size to draft length, is absent.
    """
    scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * (scheduler.max_num_running_reqs + 1)
