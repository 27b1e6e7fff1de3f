"""Tree attention by vLLM's causal attention: sequences that share blocks, and shared tokens in several blocks.

vLLM's backends write a step's keys and values before attention, in a separate call per layer (`do_kv_cache_update`).
That call is wrapped on the target's layers for the life of a runner: shared tokens are written to the branches' blocks
as well.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, CommonAttentionMetadata, GPUModelRunner


class TreeAttention:
    """The target's attention layers, ready for steps that verify trees.

    Attributes:
        block_size: tokens per block of the table.
        group: index of the KV cache group in the runner.
    """

    group = 0

    def __init__(self, runner: "GPUModelRunner", layer_names: set[str]) -> None:
        """Wraps the layers' KV cache update.

        Args:
            runner: vLLM's model runner, its KV cache laid out.
            layer_names: the target's attention layers; a draft model's are not changed.
        """
        self._runner = runner
        self.block_size: int = runner.kv_cache_config.kv_cache_groups[self.group].kv_cache_spec.block_size
        self._tokens: torch.Tensor | None = None
        self._slots: torch.Tensor | None = None
        layers = runner.compilation_config.static_forward_context
        for name in sorted(layer_names):
            self._write_twice(layers[name].impl)

    def share(self, tokens: torch.Tensor, slots: torch.Tensor) -> None:
        """Also writes the keys and values of `tokens` to `slots` (both [any] int64), until `stop_sharing`."""
        self._tokens, self._slots = (tokens, slots) if len(tokens) else (None, None)

    def write_shared(
        self, write: Any, layer: "Attention", key: torch.Tensor, value: torch.Tensor, kv_cache: Any
    ) -> None:
        """Writes keys and values ([num_tokens, ...]) of shared tokens to their further slots, by a layer's `write`."""
        write(layer, key[self._tokens], value[self._tokens], kv_cache, self._slots)

    def stop_sharing(self) -> None:
        """Ends `share`."""
        self._tokens = self._slots = None

    def metadata(
        self,
        query_start: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
        tables: npt.NDArray[np.int32],
        num_tokens: int,
        slots: torch.Tensor,
    ) -> tuple[dict[str, Any], "CommonAttentionMetadata"]:
        """Builds vLLM's attention metadata, per layer and in common.

        Args:
            query_start: [n + 1], index of each sequence's first token, then the number of tokens.
            lengths: [n], tokens in the cache at the end of the step.
            tables: [n, any].
            num_tokens: tokens of the step, with padding.
            slots: [num_tokens] int64.
        """
        from vllm.v1.attention.backend import CommonAttentionMetadata

        device = self._runner.device
        starts, ends = torch.from_numpy(query_start), torch.from_numpy(lengths)
        common = CommonAttentionMetadata(
            query_start_loc=starts.to(device),
            query_start_loc_cpu=starts,
            seq_lens=ends.to(device),
            seq_lens_cpu_upper_bound=ends,
            num_reqs=len(lengths),
            num_actual_tokens=num_tokens,
            max_query_len=int(np.diff(query_start).max()),
            max_seq_len=int(lengths.max()),
            block_table_tensor=torch.from_numpy(tables).to(device),
            slot_mapping=slots,
            causal=True,
            positions=self._runner.positions[:num_tokens],
        )
        per_layer: dict[str, Any] = {}
        for group in self._runner.attn_groups[self.group]:
            per_layer.update(dict.fromkeys(group.layer_names, group.build_metadata(common)))
        return per_layer, common

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copies blocks (from, to) with all layers' state, in any layout."""
        from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
        from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

        if copies:
            made = [KVCacheBlockCopy(*copy) for copy in copies]
            copy_kv_cache_blocks_inplace(self._runner.kv_caches, self._runner.kv_cache_config.num_blocks, made)

    def _write_twice(self, impl: Any) -> None:
        write = impl.do_kv_cache_update

        def write_shared_too(layer: "Attention", key: Any, value: Any, kv_cache: Any, slot_mapping: Any) -> None:
            write(layer, key, value, kv_cache, slot_mapping)
            if self._tokens is not None:
                self.write_shared(write, layer, key, value, kv_cache)

        impl.do_kv_cache_update = write_shared_too
