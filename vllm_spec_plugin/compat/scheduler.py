"""vLLM's scheduler: the base class, one of its switches, and its messages to the workers and the frontend."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.outputs import DraftTokenIds, LogprobsLists, ModelRunnerOutput

__all__ = [
    "DraftTokenIds",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "ModelRunnerOutput",
    "Scheduler",
    "SchedulerOutput",
    "SchedulerStats",
    "StreamToken",
    "VllmConfig",
    "append_blocks",
    "disable_placeholder_drafts",
    "merge_metadata",
    "set_stream_tokens",
    "split_by_token",
    "stream_tokens",
]

# A token's id and, with logprobs, its row of vLLM's `LogprobsLists`: token ids, logprobs, the sampled token's rank.
# (Sampling masks and routed experts come from vLLM's other runner only.)
StreamToken = tuple[int, tuple[Any, Any, Any] | None]


def disable_placeholder_drafts(scheduler: Scheduler) -> None:
    """Stops vLLM from padding a request without drafts with K placeholders.

    vLLM pads for uniform CUDA graphs; here draft lengths differ anyway, and the placeholders would count as rejected
    drafts. It pads only while this table of draft lengths by batch size is absent.
    """
    scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * (scheduler.max_num_running_reqs + 1)


def append_blocks(
    scheduler: Scheduler, scheduler_output: SchedulerOutput, block_ids: dict[str, tuple[list[int], ...]]
) -> None:
    """Appends blocks to requests' tables in a step's message to the workers.

    If vLLM zeroes new blocks, the same step zeroes these: a step later they have drafts' KV.

    Args:
        scheduler: the scheduler that allocated the blocks in this step.
        scheduler_output: vLLM's `SchedulerOutput`, changed in place.
        block_ids: per scheduled request and KV group, the added ones.
    """
    for new in scheduler_output.scheduled_new_reqs:
        if (added := block_ids.get(new.req_id)) is not None:
            _extend(new.block_ids, added)
    cached = scheduler_output.scheduled_cached_reqs
    for i, request_id in enumerate(cached.req_ids):
        if (added := block_ids.get(request_id)) is None:
            continue
        if (own := cached.new_block_ids[i]) is None:
            cached.new_block_ids[i] = added
        else:
            _extend(own, added)
    if to_zero := scheduler._get_new_block_ids_to_zero():
        scheduler_output.new_block_ids_to_zero = [*(scheduler_output.new_block_ids_to_zero or ()), *to_zero]


def _extend(tables: tuple[list[int], ...], added: tuple[list[int], ...]) -> None:
    for table, ids in zip(tables, added, strict=True):
        table.extend(ids)


def stream_tokens(output: EngineCoreOutput) -> list[StreamToken]:
    """Returns the tokens of a request's output of a step.

    Args:
        output: vLLM's `EngineCoreOutput`.
    """
    rows = output.new_logprobs
    if rows is None:
        return [(token_id, None) for token_id in output.new_token_ids]
    # Copies: views would keep the step's whole arrays in memory.
    own = (column.copy() for column in (rows.logprob_token_ids, rows.logprobs, rows.sampled_token_ranks))
    return list(zip(output.new_token_ids, zip(*own, strict=True), strict=True))


def set_stream_tokens(output: EngineCoreOutput, tokens: Sequence[StreamToken]) -> None:
    """Replaces the tokens of a request's output.

    Args:
        output: vLLM's `EngineCoreOutput`, changed in place.
        tokens: of any steps of the request.
    """
    output.new_token_ids = [token_id for token_id, _ in tokens]
    output.new_logprobs = _logprobs([row for _, row in tokens if row is not None])


# Fields of vLLM's `EngineCoreOutput` that belong to a step's first token, and to its last one.
_WITH_FIRST = {"events", "new_prompt_logprobs_tensors", "prefill_stats"}
_WITH_LAST = {"ec_transfer_params", "finish_reason", "kv_transfer_params", "spec_decode_metrics", "stop_reason"}
# Rows per token of other kinds: an output with them stays whole.
_ROWS = ("new_sampling_mask", "routed_experts")


def split_by_token(output: EngineCoreOutput) -> list[EngineCoreOutput]:
    """Returns a request's output of a step as one per token; what is no token's goes with the first or the last.

    Args:
        output: vLLM's `EngineCoreOutput`; not changed.
    """
    tokens = stream_tokens(output)
    if len(tokens) < 2 or any(getattr(output, name, None) is not None for name in _ROWS):
        return [output]
    parts = [copy.copy(output) for _ in tokens]
    for part, token in zip(parts, tokens, strict=True):
        set_stream_tokens(part, [token])
    for names, others in ((_WITH_FIRST, parts[1:]), (_WITH_LAST, parts[:-1])):
        for name in names & set(output.__struct_fields__):
            for part in others:
                setattr(part, name, None)
    return parts


def _logprobs(rows: Sequence[tuple[Any, Any, Any]]) -> LogprobsLists | None:
    if not rows:
        return None
    token_ids, logprobs, ranks = zip(*rows, strict=True)
    # Rows of one step have the width of its widest request. vLLM pads in the same way, and its frontend cuts each row
    # to its request's width.
    return LogprobsLists(_table(token_ids, 0), _table(logprobs, -np.inf), np.stack(ranks))


def _table(rows: Sequence[np.ndarray], filling: float) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows))), filling, dtype=rows[0].dtype)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def merge_metadata(output: EngineCoreOutput, earlier: EngineCoreOutput) -> None:
    """Merges the metadata of an earlier output, everything but tokens, into a request's output.

    Args:
        output: vLLM's `EngineCoreOutput`, changed in place.
        earlier: an earlier one, without tokens; fields set in both keep the later value, events are joined.
    """
    events = [*(earlier.events or ()), *(output.events or ())]
    for field in output.__struct_fields__:
        if getattr(output, field) is None:
            setattr(output, field, getattr(earlier, field))
    output.events = events or None
