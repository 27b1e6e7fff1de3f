"""Steps in which vLLM's drafters do not run: whether they may, and what a runner needs all the same."""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import (
        GPUModelRunner,
        SamplerOutput,
        SchedulerOutput,
        SpecDecodeMetadata,
        V2InputBatch,
        VllmConfig,
    )

# In place of the draft tokens of a step in vLLM's `SchedulerOutput`: the drafter does not run. With 0 it runs once.
REST = -1

# Drafters without keys and values. Others of vLLM's follow each step's tokens on the host or on the device.
_WITHOUT_KV = ("ngram", "medusa")
_WITH_KV = ("draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark")


class DrafterAfterRest(Enum):
    """Behaviour of a drafter after it has rested: all as before, computing what it lacks, or drafting without."""

    AS_BEFORE = "drafts as before"
    CATCHES_UP = "computes what it lacks"
    KEEPS_GAP = "drafts without what it lacks"


def after_rest(vllm_config: "VllmConfig") -> DrafterAfterRest | str:
    """Returns what the drafter does after a rest, or why it never rests."""
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    assert speculative is not None
    method = speculative.method
    if parallel.data_parallel_size > 1:
        return "replicas run their drafters in step with each other"
    if parallel.pipeline_parallel_size > 1:
        return "not tested with pipeline stages"
    if not is_own_worker(parallel.worker_cls):
        return f"worker_cls {parallel.worker_cls!r} is no subclass of the plugin's worker"
    if method in _WITHOUT_KV or (vllm_config.use_v2_model_runner and method == "ngram_gpu"):
        return DrafterAfterRest.AS_BEFORE
    if method not in _WITH_KV:
        return f"{method} may follow each step's tokens"
    if vllm_config.kv_transfer_config is not None:
        return "a KV connector may send its keys and values"
    return DrafterAfterRest.CATCHES_UP if method == "draft_model" else DrafterAfterRest.KEEPS_GAP


def is_own_worker(worker: str | type) -> bool:
    """Whether a class, or its dotted name, is the plugin's worker of vLLM's drafters or a subclass."""
    from vllm.utils.import_utils import resolve_obj_by_qualname

    worker_class = resolve_obj_by_qualname(worker) if isinstance(worker, str) else worker
    return bool(getattr(worker_class, "rests_drafter", False))


def without_default_skip(output: "SchedulerOutput") -> None:
    """Keeps vLLM 0.33 from making 0 draft tokens of `REST`, in steps of which it knows that nobody needs drafts."""
    if hasattr(output, "skip_drafts"):
        output.skip_drafts = False


def resting_on_v1(runner: "GPUModelRunner", propose: Callable[..., Any]) -> Callable[..., Any]:
    """Returns V1's `propose_draft_token_ids` with rests."""

    def proposed(output: "SchedulerOutput", sampled: torch.Tensor | list[list[int]], *args: Any, **kwargs: Any) -> Any:
        if output.num_spec_tokens_to_schedule != REST:
            return propose(output, sampled, *args, **kwargs)
        if isinstance(sampled, list):
            return [[] for _ in sampled]
        if runner.valid_sampled_token_count_event is not None:
            # The next step, planned before this one's outcome, takes its tokens from here.
            drafter: Any = runner.drafter
            ids_and_counts = drafter.prepare_next_token_ids_padded(
                sampled, runner.requests, runner.input_batch, runner.discard_request_mask.gpu
            )
            runner._copy_valid_sampled_token_count(*ids_and_counts)
        return torch.empty(len(sampled), 0, dtype=torch.int64, device=sampled.device)

    return proposed


def has_no_speculation(runner: "GPUModelRunner", output: "SchedulerOutput") -> bool:
    """Whether V1 can run a step as without speculation: it rests, verifies nothing, and nothing is known late.

    Recurrent state is kept by numbers of draft tokens, also where there are none; and so are thinking budgets.
    """
    is_idle = output.num_spec_tokens_to_schedule == REST and not output.scheduled_spec_decode_tokens
    counts_drafts = runner.model_config.has_inner_state or runner.input_batch.thinking_budget_state_holder is not None
    return is_idle and not counts_drafts and not runner.use_async_scheduling


def sampling_on_v1(runner: "GPUModelRunner", sample: Callable[..., Any]) -> Callable[..., Any]:
    """Returns V1's `_sample` that verifies in steps with drafts only; vLLM's does in all, which takes its time.

    In an engine with speculation only verification applies thinking budgets.
    """

    def sampled(logits: torch.Tensor | None, drafts: "SpecDecodeMetadata | None") -> "SamplerOutput":
        budgets = runner.input_batch.thinking_budget_state_holder
        has_budgets = budgets is not None and budgets.has_tracked_requests()
        if drafts is not None and drafts.max_spec_len == 0 and not has_budgets:
            drafts = None
        output: SamplerOutput = sample(logits, drafts)
        return output

    return sampled


def resting_on_v2(drafts: torch.Tensor, propose: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the `propose` of a V2 speculator with rests.

    Args:
        drafts: [max_num_reqs, K], the runner's draft tokens.
        propose: the speculator's.
    """

    def proposed(
        input_batch: "V2InputBatch", *args: Any, num_speculative_tokens: int | None = None, **kwargs: Any
    ) -> torch.Tensor:
        if num_speculative_tokens == REST:
            return drafts.new_full((input_batch.num_reqs, drafts.shape[1]), -1)
        found: torch.Tensor = propose(input_batch, *args, num_speculative_tokens=num_speculative_tokens, **kwargs)
        return found

    return proposed
