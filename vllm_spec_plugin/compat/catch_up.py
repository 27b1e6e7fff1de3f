"""vLLM's draft models compute keys and values that they lack, in one pass more before they draft; V2's draft as many
tokens as are asked for."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import CommonAttentionMetadata, GPUModelRunner, V2InputBatch, V2ModelRunner

# Per request, the first position and the tokens from there on.
MissingTokens = Mapping[str, tuple[int, list[int]]]
_ATTRIBUTE = "vllm_spec_plugin_missing"
_NO_SLOT = -1
# Place of the step's metadata among the arguments of V1's `propose_draft_token_ids` after the first.
_METADATA_V1 = 6


def catching_up_on_v1(
    runner: "GPUModelRunner", missing_of: Callable[[Any], MissingTokens], propose: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns V1's `propose_draft_token_ids` of a draft model that first computes what it lacks.

    Args:
        runner: the runner.
        missing_of: returns what is in vLLM's `SchedulerOutput`.
        propose: its method.
    """

    def proposed(output: Any, *args: Any, **kwargs: Any) -> Any:
        if missing := missing_of(output):
            _catch_up_on_v1(runner, missing, args[_METADATA_V1])
        return propose(output, *args, **kwargs)

    return proposed


def _catch_up_on_v1(runner: "GPUModelRunner", missing: MissingTokens, step: "CommonAttentionMetadata") -> None:
    """Computes keys and values of V1's draft model.

    Args:
        runner: the runner, about to draft.
        missing: what the draft model lacks, of requests of the step; all before the step's tokens.
        step: metadata of the step.
    """
    drafter: Any = runner.drafter
    rows = torch.tensor([runner.input_batch.req_id_to_index[name] for name in missing], device=runner.device)
    on_host = _laid_out(missing.values())
    tokens, positions, starts, ends, own_rows = (each.to(runner.device, non_blocking=True) for each in on_host)
    tables, size = step.block_table_tensor[rows], drafter.block_size
    blocks = tables[own_rows, positions // size]
    own = step.replace(
        query_start_loc=starts,
        query_start_loc_cpu=on_host.starts,
        seq_lens=ends,
        seq_lens_cpu_upper_bound=on_host.ends,
        num_reqs=len(rows),
        num_actual_tokens=len(tokens),
        max_query_len=int(on_host.starts.diff().max()),
        max_seq_len=int(on_host.ends.max()),
        block_table_tensor=tables,
        slot_mapping=blocks * size + positions % size,
        positions=None,
        is_prefilling=None,
    )
    drafter.propose(
        num_speculative_tokens=0,
        target_token_ids=tokens,
        target_positions=positions,
        target_hidden_states=tokens,
        # Its slot is that of the step's first token, which the pass after this one writes.
        next_token_ids=tokens[starts[1:] - 1],
        token_indices_to_sample=None,
        common_attn_metadata=own,
        sampling_metadata=runner.input_batch.sampling_metadata,
    )


class _Pass(NamedTuple):
    """Tokens of a pass on the host: their ids, positions and rows, [num_tokens]; starts, [n + 1]; ends, [n]."""

    tokens: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    rows: torch.Tensor


def _laid_out(missing: Collection[tuple[int, list[int]]]) -> _Pass:
    """Returns a pass over tokens from a first position on, a row for each; a row's end is the position after them."""
    firsts = np.array([first for first, _ in missing], np.int64)
    lengths = np.array([len(tokens) for _, tokens in missing], np.int64)
    starts = np.concatenate(([0], lengths.cumsum())).astype(np.int32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(starts[-1]) + (firsts - starts[:-1])[rows]
    tokens = np.concatenate([np.asarray(tokens, np.int32) for _, tokens in missing])
    ends = (firsts + lengths).astype(np.int32)
    return _Pass(*map(torch.from_numpy, (tokens, positions, starts, ends, rows)))


def note_missing(runner: "V2ModelRunner", missing_of: Callable[[Any], MissingTokens]) -> None:
    """Lets V2's batches carry what the draft model lacks, from the scheduler's message to the speculator.

    Args:
        runner: the runner.
        missing_of: returns what is in vLLM's `SchedulerOutput`.
    """
    prepare = runner.prepare_inputs

    def prepare_inputs(output: Any, *args: Any, **kwargs: Any) -> "V2InputBatch":
        batch = prepare(output, *args, **kwargs)
        if missing := missing_of(output):
            setattr(batch, _ATTRIBUTE, missing)
        return batch

    runner.prepare_inputs = prepare_inputs  # type: ignore[method-assign, assignment] # vLLM calls the runner's own


def catching_up_on_v2(speculator: Any, propose: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the `propose` of V2's draft model that first computes what it lacks, and makes no more passes than asked.

    Args:
        speculator: vLLM's `StandaloneARSpeculator`.
        propose: its method.
    """

    def proposed(
        input_batch: "V2InputBatch", *args: Any, num_speculative_tokens: int | None = None, **kwargs: Any
    ) -> torch.Tensor:
        if missing := getattr(input_batch, _ATTRIBUTE, None):
            _catch_up_on_v2(speculator, input_batch, missing)
        most: int = speculator.num_speculative_steps
        if num_speculative_tokens is not None:
            # vLLM's makes all passes, also for fewer tokens. Without any it still computes the step's tokens.
            speculator.num_speculative_steps = max(num_speculative_tokens, 1)
        try:
            propose(input_batch, *args, num_speculative_tokens=num_speculative_tokens, **kwargs)
        finally:
            speculator.num_speculative_steps = most
        drafts: torch.Tensor = speculator.draft_tokens[: input_batch.num_reqs]
        return drafts

    return proposed


@torch.inference_mode()
def _catch_up_on_v2(speculator: Any, batch: "V2InputBatch", missing: MissingTokens) -> None:
    # Imported here: the modules need Triton.
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor

    count, buffers = batch.num_reqs, speculator.input_buffers
    # Each request of the step has a row; others compute one token, and write nothing.
    on_host = _laid_out([missing.get(name, (0, [0])) for name in batch.req_ids])
    tokens, positions, starts, ends, rows = (each.to(speculator.device, non_blocking=True) for each in on_host)
    is_idle = torch.tensor([name not in missing for name in batch.req_ids], device=speculator.device)
    buffers.query_start_loc[: count + 1].copy_(starts)
    buffers.seq_lens[:count].copy_(ends)
    slots = speculator.block_tables.compute_slot_mappings(
        batch.idx_mapping,
        buffers.query_start_loc[: count + 1],
        positions,
        len(tokens),
        out=speculator.expanded_slot_mappings,
    )
    slots.masked_fill_(is_idle[rows], _NO_SLOT)
    descriptor = BatchExecutionDescriptor(cg_mode=CUDAGraphMode.NONE, num_tokens=len(tokens), num_reqs=count)
    attention = speculator._build_attn_metadata(
        num_reqs=count,
        batch_desc=descriptor,
        query_start_loc_np=on_host.starts.numpy(),
        seq_lens_cpu_upper_bound=on_host.ends,
        step=0,
        slot_mappings=slots,
    )
    by_layer = build_slot_mappings_by_layer(slots, speculator.kv_cache_config)
    speculator._run_model(tokens, positions, attention, by_layer, None)
