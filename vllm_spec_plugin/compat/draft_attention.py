"""The draft's attention layers in vLLM's KV cache, and what they need to know of a pass."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class PassBatch:
    """The requests of one pass of the draft model: n of them, with num_tokens tokens in all.

    Attributes:
        query_start: [n + 1] int32, where each one's tokens begin.
        query_start_cpu: the same, on the CPU.
        lengths: [n] int32, each one's text up to its last token of this pass.
        blocks: [n, any] int32, their block tables.
        slots: [num_tokens] int64, where the tokens' keys and values go.
        longest_query: most tokens of one request.
        longest: greatest of `lengths`, or above it.
        step: which pass of the current step this is.
    """

    query_start: torch.Tensor
    query_start_cpu: torch.Tensor
    lengths: torch.Tensor
    blocks: torch.Tensor
    slots: torch.Tensor
    longest_query: int
    longest: int
    step: int


@dataclass
class DraftAttention:
    """The draft's attention layers in vLLM's KV cache.

    Attributes:
        groups: vLLM's attention groups of these layers.
        kv_cache_group: which of the runner's block tables is theirs.
        block_size: tokens per block of that table.
        num_blocks: blocks of the pool.
    """

    groups: list[Any]
    kv_cache_group: int
    block_size: int
    num_blocks: int

    @classmethod
    def of(cls, runner: Any, vllm_config: Any, layer_names: set[str]) -> "DraftAttention":
        """Finds the layers in the runner's KV cache, once vLLM has laid it out.

        Raises:
            ValueError: they are in more than one KV cache group, or vLLM splits the group's blocks.
        """
        groups = [group for groups in runner.attn_groups for group in groups if set(group.layer_names) & layer_names]
        ids = {group.kv_cache_group_id for group in groups}
        model = vllm_config.model_config.model
        if len(ids) != 1:
            raise ValueError(
                f"proposer.model {model}: its layers are in {len(ids)} KV cache groups, they must share one"
            )
        gid = ids.pop()
        size = runner.kv_cache_config.kv_cache_groups[gid].kv_cache_spec.block_size
        table = runner.input_batch.block_table[gid]
        if table.block_size != size:
            raise ValueError(
                f"proposer.model {model}: this attention backend splits blocks of {size} tokens into "
                f"{table.block_size}; start with --block-size {table.block_size}"
            )
        own = []
        for group in groups:
            mine = type(group)(
                backend=group.backend,
                layer_names=sorted(set(group.layer_names) & layer_names),
                kv_cache_spec=group.kv_cache_spec,
                kv_cache_group_id=gid,
            )
            # Builders keep scratch space: the draft's must not be the target's, nor of the target's type.
            mine.create_metadata_builders(vllm_config, runner.device, kernel_block_size=table.block_size)
            own.append(mine)
        return cls(own, gid, size, runner.kv_cache_config.num_blocks)
