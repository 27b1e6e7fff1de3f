"""vLLM's CPU attention with less Python around its two kernels: a small model's pass is mostly that."""

from typing import Any

import torch
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl


class LeanCPUAttention(CPUAttentionBackendImpl):
    """Decoder attention only; remembers the views of the KV cache that vLLM makes anew in every call."""

    _seen: torch.Tensor | None = None

    @classmethod
    def put_into(cls, layer: Any) -> None:
        """Makes `layer` use it, if it is decoder attention of vLLM's CPU backend."""
        impl = layer.impl
        if type(impl) is not CPUAttentionBackendImpl or impl.attn_type != "decoder" or impl.sinks is not None:
            return
        lean = cls.__new__(cls)
        lean.__dict__.update(impl.__dict__)
        layer.impl = lean

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See vLLM's."""
        if attn_metadata is None:
            return output
        keys, values = self._caches(kv_cache)
        torch.ops._C.cpu_attention_with_kv_cache(
            query,
            keys,
            values,
            output,
            attn_metadata.query_start_loc,
            attn_metadata.seq_lens,
            self.scale,
            attn_metadata.causal,
            self.alibi_slopes,
            self.sliding_window,
            attn_metadata.block_table,
            self.logits_soft_cap,
            attn_metadata.scheduler_metadata,
            None,
            attn_metadata.dynamic_causal,
            layer._k_scale_float,
            layer._v_scale_float,
            self.kv_cache_dtype,
        )
        return output

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """See vLLM's."""
        keys, values = self._caches(kv_cache)
        torch.ops._C.cpu_attn_reshape_and_cache(
            key,
            value,
            keys,
            values,
            slot_mapping,
            layer.isa,
            layer._k_scale_float,
            layer._v_scale_float,
            self.kv_cache_dtype,
        )

    def _caches(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._seen is not kv_cache:
            num_blocks, num_kv_heads, block_size, _ = kv_cache.shape
            keys, values = kv_cache.view(num_blocks, num_kv_heads, block_size * 2, -1).chunk(2, dim=2)
            self._seen, self._halves = kv_cache, (keys, values)
        return self._halves
