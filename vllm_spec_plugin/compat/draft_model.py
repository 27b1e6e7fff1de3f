"""A second model beside the target: its configuration and its loading."""

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


def load_draft_model(vllm_config: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Loads the model of `draft_vllm_config` through vLLM's loader.

    Returns:
        The model, and its attention layers by name, which have joined the target's: vLLM will give
        them room in the same KV cache blocks.

    Raises:
        ValueError: it has layers that keep anything but plain keys and values per token.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader import get_model
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
    return model, mine


def draft_pass(vllm_config: Any, model: Any, layers: dict[str, Any]) -> Any:
    """The `DraftPass` for a model of `load_draft_model`: the fastest that suits it."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm_spec_plugin.compat.cpu_pass import CPUPass

        if CPUPass.suits(vllm_config, model, layers):
            return CPUPass(vllm_config, model, layers)
    from vllm_spec_plugin.compat.draft_pass import DraftPass

    return DraftPass(vllm_config, model, layers)
