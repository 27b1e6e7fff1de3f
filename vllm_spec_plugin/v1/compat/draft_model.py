"""Configures and loads a draft model next to the target."""

import copy
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, ModelConfig, VllmConfig
    from vllm_spec_plugin.v1.compat.draft_pass import DraftPass

_WRITTEN = ("cache_config", "parallel_config", "scheduler_config", "structured_outputs_config")


def draft_vllm_config(vllm_config: "VllmConfig", draft: "ModelConfig", **changes: Any) -> "VllmConfig":
    """Creates a `VllmConfig` like the target's for a draft model; does not modify the target's.

    Args:
        vllm_config: the target's.
        draft: the result of `draft_model_config`.
        changes: further fields.
    """
    from vllm.config.utils import replace

    # The target may have been given a backend that does not suit the draft: vLLM chooses again.
    attention = replace(vllm_config.attention_config, backend=None)
    # vLLM writes to these when it checks the new configuration. Layers register in the compilation config: shared.
    own = {name: copy.copy(getattr(vllm_config, name)) for name in _WRITTEN}
    own["cache_config"].sliding_window = _window_of_all_layers(draft)
    return replace(vllm_config, attention_config=attention, **own, **changes)


def _window_of_all_layers(model_config: "ModelConfig") -> int | None:
    """Returns the default sliding window of the model's layers, as vLLM's `EngineArgs` finds it."""
    layer_types = getattr(model_config.hf_text_config, "layer_types", None)
    if layer_types is None or all(kind == "sliding_attention" for kind in layer_types):
        window: int | None = model_config.get_sliding_window()
        return window
    return None


def load_draft_model(
    vllm_config: "VllmConfig", model_config: "ModelConfig"
) -> tuple[torch.nn.Module, dict[str, "Attention"]]:
    """Loads a draft model through vLLM's loader.

    Args:
        vllm_config: the result of `draft_vllm_config`.
        model_config: the draft model's.

    Returns:
        The model, and its attention layers by name. They are registered with the target's, so vLLM lays out one KV
        cache for both.

    Raises:
        ValueError: a layer keeps other state than keys and values of all its tokens.
    """
    from vllm.compilation.backends import set_model_tag
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader import get_model

    def layers() -> dict[str, Any]:
        return get_layers_from_vllm_config(vllm_config, AttentionLayerBase)

    before = set(layers())
    if model_config.is_moe:
        _init_expert_group()
    with set_model_tag("draft_model"):
        model = get_model(vllm_config=vllm_config, model_config=model_config, prefix="draft_model")
    mine = {name: layer for name, layer in layers().items() if name not in before}
    for name, layer in mine.items():
        keep_all_tokens(layer)
        if reason := layer_obstacle(layer, vllm_config):
            raise ValueError(
                f"proposer.model {model_config.model}: layer {name} {reason}; allowed: layers of full or "
                "sliding-window attention; choose another draft model"
            )
    return model, mine


def _init_expert_group() -> None:
    """Creates the group of ranks that share experts, which vLLM does only for a target with experts.

    Without data parallelism, which is refused for drafts with experts, it has the ranks of tensor parallelism.
    """
    from vllm.distributed import parallel_state

    if parallel_state._EP is None:
        world, ranks = parallel_state.get_world_group(), parallel_state.get_tp_group().ranks
        backend = torch.distributed.get_backend(world.device_group)
        parallel_state._EP = parallel_state.init_model_parallel_group(
            [ranks], world.local_rank, backend, group_name="ep"
        )


def keep_all_tokens(layer: "Attention") -> None:
    """Makes vLLM keep a sliding-window layer's keys and values of all tokens; the window still limits attention.

    Otherwise blocks outside the window would be recomputed whenever the draft model lags behind the text.
    """
    # The layer reads this for its KV cache spec only; its implementation has its own.
    if getattr(layer, "sliding_window", None) is not None:
        layer.sliding_window = None


def layer_obstacle(layer: "Attention", vllm_config: "VllmConfig") -> str:
    """Returns why a draft model may not have this layer; empty if it may."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    if getattr(layer, "kv_sharing_target_layer_name", None) is not None:
        return "uses the keys and values of another layer"
    spec = layer.get_kv_cache_spec(vllm_config)
    # Subclasses keep other things than keys and values, or not those of all tokens.
    if type(spec) is not FullAttentionSpec:
        return f"keeps its state as {type(spec).__name__}"
    if spec.non_causal:
        return "does not attend causally"
    return ""


def draft_pass(vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> "DraftPass":
    """Creates the fastest `DraftPass` that suits a model of `load_draft_model`."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm_spec_plugin.v1.compat.cpu_pass import CPUPass

        if CPUPass.suits(vllm_config, model, layers):
            return CPUPass(vllm_config, model, layers)
    from vllm_spec_plugin.v1.compat.draft_pass import DraftPass

    return DraftPass(vllm_config, model, layers)
