"""Tree attention out of vLLM's ordinary one: sequences that share blocks, and keys and values in several places.

vLLM's backends write a step's keys and values before they attend, in a call of its own per layer
(`do_kv_cache_update`). That call is wrapped on the target's layers, for the life of a runner: what branches share is
written to their blocks as well.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class TreeAttention:
    """The target's attention layers, ready for steps that verify trees.

    Attributes:
        block_size: tokens per block of the table.
        group: which of the runner's KV cache groups it is.
    """

    group = 0

    def __init__(self, runner: Any, layer_names: set[str]) -> None:
        """Hooks into the layers.

        Args:
            runner: vLLM's model runner, its KV cache laid out.
            layer_names: the target's attention layers; a draft model's stay as they are.
        """
        self._runner = runner
        self.block_size: int = runner.kv_cache_config.kv_cache_groups[self.group].kv_cache_spec.block_size
        self._tokens: torch.Tensor | None = None
        self._slots: torch.Tensor | None = None
        layers = runner.compilation_config.static_forward_context
        for name in sorted(layer_names):
            self._write_twice(layers[name].impl)

    def share(self, tokens: torch.Tensor, slots: torch.Tensor) -> None:
        """Until `stop_sharing`, also writes the keys and values of `tokens` to `slots` (both [any] int64)."""
        self._tokens, self._slots = (tokens, slots) if len(tokens) else (None, None)

    def write_shared(self, write: Any, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: Any) -> None:
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
    ) -> tuple[dict[str, Any], Any]:
        """vLLM's attention metadata, per layer, and what it was made of.

        Args:
            query_start: [n + 1], where each sequence's tokens begin.
            lengths: [n], tokens in the cache at the end of the step.
            tables: [n, any].
            num_tokens: of the step, with padding.
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
        """Copies blocks (from, to), all layers' state in them, whatever their layout."""
        from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

        if copies:
            copy_kv_cache_blocks_inplace(self._runner.kv_caches, self._runner.kv_cache_config.num_blocks, copies)

    def _write_twice(self, impl: Any) -> None:
        write = impl.do_kv_cache_update

        def write_shared_too(layer: Any, key: Any, value: Any, kv_cache: Any, slot_mapping: Any) -> None:
            write(layer, key, value, kv_cache, slot_mapping)
            if self._tokens is not None:
                self.write_shared(write, layer, key, value, kv_cache)

        impl.do_kv_cache_update = write_shared_too
