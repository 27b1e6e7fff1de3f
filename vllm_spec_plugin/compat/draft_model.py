"""A second model beside the target: its configuration, its loading, its attention."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


def draft_vllm_config(vllm_config: Any, *, model: str, dtype: str | None, quantization: str | None) -> Any:
    """The target's `VllmConfig` with another model in it.

    Args:
        vllm_config: the target's.
        model: folder or name of the draft.
        dtype: None for the target's, "auto" for the checkpoint's own.
        quantization: vLLM's name for it; None reads the checkpoint's.
    """
    from vllm.config import ModelConfig
    from vllm.config.utils import replace

    target = vllm_config.model_config
    draft = ModelConfig(
        model=model,
        runner="draft",
        tokenizer=target.tokenizer,
        tokenizer_mode=target.tokenizer_mode,
        tokenizer_revision=target.tokenizer_revision,
        trust_remote_code=target.trust_remote_code,
        dtype=dtype or target.dtype,
        seed=target.seed,
        quantization=quantization,
        enforce_eager=target.enforce_eager,
        config_format=target.config_format,
    )
    draft.max_model_len = min(draft.max_model_len, target.max_model_len)
    # The target may have been given a backend that does not suit the draft: vLLM chooses anew.
    attention = replace(vllm_config.attention_config, backend=None)
    return replace(vllm_config, model_config=draft, quant_config=None, attention_config=attention)


def load_draft_model(vllm_config: Any) -> tuple[torch.nn.Module, set[str]]:
    """Loads the model of `draft_vllm_config` through vLLM's loader.

    Returns:
        The model, and the names of its attention layers, which have joined the target's: vLLM will
        give them room in the same KV cache blocks.

    Raises:
        ValueError: it has layers that keep anything but plain keys and values per token.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader import get_model
    from vllm.platforms import current_platform
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    def layers() -> dict[str, Any]:
        return get_layers_from_vllm_config(vllm_config, AttentionLayerBase)

    before = set(layers())
    with set_model_tag("draft_model"):
        model = get_model(vllm_config=vllm_config, prefix="draft_model")
    mine = {name: layer for name, layer in layers().items() if name not in before}
    for name, layer in mine.items():
        if not isinstance(layer.get_kv_cache_spec(vllm_config), FullAttentionSpec):
            raise ValueError(
                f"proposer.model {vllm_config.model_config.model}: layer {name} is not full attention, which is all "
                "that a draft model may consist of; choose another draft"
            )
        if current_platform.is_cpu():
            from vllm_spec_plugin.compat.cpu_attention import LeanCPUAttention

            LeanCPUAttention.put_into(layer)
    return model, set(mine)


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

    @property
    def layer_names(self) -> Iterable[str]:
        """All of them."""
        return (name for group in self.groups for name in group.layer_names)

    def metadata(self, common: Any, step: int) -> dict[str, Any]:
        """vLLM's attention metadata per layer, for `common_metadata`'s result and the step-th pass."""
        built = {}
        for group in self.groups:
            metadata = group.build_metadata_for_drafting(common_attn_metadata=common, draft_index=step)
            built.update(dict.fromkeys(group.layer_names, metadata))
        return built


def common_metadata(**fields: Any) -> Any:
    """vLLM's `CommonAttentionMetadata`."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    return CommonAttentionMetadata(**fields)


@contextmanager
def forward_context(
    vllm_config: Any, metadata: dict[str, Any] | None, slot_mapping: dict[str, torch.Tensor], num_tokens: int
) -> Iterator[None]:
    """While it lasts, the model can be called with `num_tokens` tokens; without metadata, to warm up."""
    from vllm.forward_context import set_forward_context

    with set_forward_context(metadata, vllm_config, num_tokens=num_tokens, slot_mapping=slot_mapping):
        yield
