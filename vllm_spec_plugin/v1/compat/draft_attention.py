"""The draft model's attention layers in vLLM's KV cache, and their inputs in a pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import AttentionGroup, GPUModelRunner, VllmConfig

# Fields of vLLM's cache config, set when the KV cache is laid out; the draft has a config of its own.
_SET_LATE = ("block_size", "num_gpu_blocks", "kv_cache_layout")


@dataclass
class PassBatch:
    """The requests of one pass of the draft model: n of them, with num_tokens tokens in all.

    Attributes:
        query_start: [n + 1] int32, index of each request's first token, then num_tokens.
        query_start_cpu: `query_start` on the CPU.
        lengths: [n] int32, each request's tokens up to its last one in this pass.
        blocks: per KV cache group [n, any] int32, the block tables.
        slots: [num_groups, num_tokens] int64, slots of the tokens' keys and values.
        longest_query: maximum tokens of one request.
        longest: maximum of `lengths`, or an upper bound.
        step: index of this pass in the step.
    """

    query_start: torch.Tensor
    query_start_cpu: torch.Tensor
    lengths: torch.Tensor
    blocks: Sequence[torch.Tensor]
    slots: torch.Tensor
    longest_query: int
    longest: int
    step: int


@dataclass
class DraftAttention:
    """The draft model's attention layers in vLLM's KV cache.

    Attributes:
        kv_cache_groups: indices of the layers' KV cache groups in the runner, ascending.
        block_sizes: tokens per block of each of those tables.
        num_blocks: blocks of the pool.
        groups: vLLM's attention groups of these layers.
        tables: per attention group, the index of its block table in `kv_cache_groups`.
    """

    kv_cache_groups: tuple[int, ...]
    block_sizes: tuple[int, ...]
    num_blocks: int
    groups: "list[AttentionGroup]"
    tables: list[int]

    @classmethod
    def of(cls, runner: "GPUModelRunner", vllm_config: "VllmConfig", layer_names: set[str]) -> "DraftAttention":
        """Finds the layers in the runner's KV cache, after vLLM has laid it out.

        Raises:
            ValueError: the attention backend splits the blocks of one of the layers' KV cache groups.
        """
        for name in _SET_LATE:
            setattr(vllm_config.cache_config, name, getattr(runner.cache_config, name))
        groups = [group for groups in runner.attn_groups for group in groups if set(group.layer_names) & layer_names]
        ids = tuple(sorted({group.kv_cache_group_id for group in groups}))
        sizes = tuple(runner.kv_cache_config.kv_cache_groups[gid].kv_cache_spec.block_size for gid in ids)
        own = []
        for group in groups:
            size = group.kv_cache_spec.block_size
            mine = type(group)(
                backend=group.backend,
                layer_names=sorted(set(group.layer_names) & layer_names),
                kv_cache_spec=group.kv_cache_spec,
                kv_cache_group_id=group.kv_cache_group_id,
            )
            # Builders keep scratch space: the draft's must not be the target's, nor of the target's type.
            mine.create_metadata_builders(vllm_config, runner.device, kernel_block_size=size)
            own.append(mine)
            kernel_size = mine.kernel_block_size or runner.input_batch.block_table[group.kv_cache_group_id].block_size
            if kernel_size != size:
                raise ValueError(
                    f"proposer.model: attention backend {group.backend.get_name()} "
                    f"splits blocks of {size} tokens into {kernel_size}, which draft models do not support; start "
                    f"with --block-size {kernel_size} or another --attention-backend, or choose another draft model"
                )
        tables = [ids.index(group.kv_cache_group_id) for group in own]
        return cls(ids, sizes, runner.kv_cache_config.num_blocks, own, tables)
