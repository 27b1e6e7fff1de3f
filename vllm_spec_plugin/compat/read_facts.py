"""Reads `Facts` from vLLM's configuration, and from a model runner."""

import dataclasses
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from vllm_spec_plugin.compat.model_facts import Facts, Layer, ModelFacts, ServerFacts

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner, KVCacheSpec, ModelConfig, VllmConfig

# Values of transformers' `layer_types` and `layers_block_type`.
_LAYER_TYPES = {
    "full_attention": Layer.FULL,
    "attention": Layer.FULL,
    "sliding_attention": Layer.SLIDING,
    "chunked_attention": Layer.CHUNKED,
    "linear_attention": Layer.RECURRENT,
    "mamba": Layer.RECURRENT,
    "conv": Layer.RECURRENT,
    "recurrent": Layer.RECURRENT,
}
# Compiler passes that replace the call that writes keys and values.
_FUSED_KV_WRITES = ("fuse_rope_kvcache", "fuse_rope_kvcache_cat_mla", "fuse_qk_norm_rope_kvcache")


def read_facts(vllm_config: "VllmConfig", draft: "ModelConfig | None") -> Facts:
    """Reads the properties that vLLM's configuration has, before weights are loaded.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        draft: vLLM's `ModelConfig` of the draft model; None if there is none.
    """
    target, server = vllm_config.model_config, _server_facts(vllm_config)
    return Facts(_model_facts(target), None if draft is None else _model_facts(draft), server)


def read_runner_facts(runner: "GPUModelRunner", facts: Facts, draft_layers: set[str]) -> Facts:
    """Completes `facts` from a runner that has laid out its KV cache.

    Args:
        runner: vLLM's model runner.
        facts: result of `read_facts`.
        draft_layers: names of the draft model's attention layers.
    """
    from vllm.model_executor.layers.attention import Attention

    from vllm_spec_plugin.compat.runner import specs_of_layers

    groups = runner.kv_cache_config.kv_cache_groups
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    other_layers = []
    for group in groups:
        for name, spec in specs_of_layers(group).items():
            kinds[name in draft_layers].add(_kind(spec))
            layer: Attention = runner.compilation_config.static_forward_context[name]
            writes = type(layer).forward is Attention.forward and hasattr(layer.impl, "do_kv_cache_update")
            if name not in draft_layers and not writes:
                other_layers.append(name)
    backends = {group.backend for groups in runner.attn_groups for group in groups}
    size = groups[0].kv_cache_spec.block_size if groups else 0
    server = dataclasses.replace(
        facts.server,
        num_kv_groups=len(groups),
        split_block_size=size if groups and runner.input_batch.block_table[0].block_size != size else None,
        backends_that_write=tuple(sorted(b.get_name() for b in backends if b.forward_includes_kv_cache_update)),
        other_layers=tuple(sorted(other_layers)),
    )
    target = dataclasses.replace(facts.target, layers=frozenset(kinds[False]))
    draft = facts.draft and dataclasses.replace(facts.draft, layers=frozenset(kinds[True]))
    return Facts(target, draft, server)


def _model_facts(model_config: "ModelConfig") -> ModelFacts:
    return ModelFacts(
        name=str(model_config.model),
        architecture=model_config.architecture,
        layers=_layers(model_config),
        is_moe=model_config.is_moe,
        generates=model_config.runner_type != "pooling"
        and not model_config.is_encoder_decoder
        and not model_config.is_diffusion,
        takes_media=model_config.supports_multimodal_inputs,
        attends_both_ways=model_config.is_mm_prefix_lm,
        has_mrope=model_config.uses_mrope,
    )


def _layers(model_config: "ModelConfig") -> frozenset[str]:
    text = model_config.hf_text_config
    types = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None)
    if model_config.use_mla:
        return frozenset({Layer.MLA})
    if model_config.is_hybrid or model_config.is_attention_free or (model_config.has_inner_state and types is None):
        return frozenset({Layer.RECURRENT})
    kinds = {_LAYER_TYPES.get(kind, kind) for kind in types or ()}
    if types is None:
        kinds.add(Layer.SLIDING if model_config.get_sliding_window() else Layer.FULL)
    if getattr(text, "attention_chunk_size", None):
        kinds.add(Layer.CHUNKED)
    if model_config.rswa_window is not None:
        kinds.add("reference sliding-window attention")
    if model_config.disable_sliding_window and Layer.SLIDING in kinds:
        kinds = kinds - {Layer.SLIDING} | {Layer.FULL}
    return frozenset(kinds)


def _kind(spec: "KVCacheSpec") -> str:
    from vllm.v1 import kv_cache_interface as vllm

    if type(spec) is vllm.FullAttentionSpec:
        if spec.non_causal:
            return "non-causal attention"
        if spec.attention_chunk_size is not None:
            return Layer.CHUNKED
        return Layer.FULL if spec.sliding_window is None else Layer.SLIDING
    kinds: dict[type[KVCacheSpec], str] = {
        vllm.SlidingWindowSpec: Layer.SLIDING,
        vllm.ChunkedLocalAttentionSpec: Layer.CHUNKED,
        vllm.MLAAttentionSpec: Layer.MLA,
        vllm.SlidingWindowMLASpec: Layer.MLA,
        vllm.MambaSpec: Layer.RECURRENT,
        vllm.CrossAttentionSpec: Layer.CROSS,
        vllm.EncoderOnlyAttentionSpec: Layer.ENCODER,
    }
    return kinds.get(type(spec), type(spec).__name__)


def _server_facts(vllm_config: "VllmConfig") -> ServerFacts:
    from vllm import envs
    from vllm.config import CUDAGraphMode

    parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
    mode = compilation.cudagraph_mode or CUDAGraphMode.NONE
    splits_at_writes = (
        "vllm::unified_kv_cache_update" in (compilation.splitting_ops or ()) and not envs.VLLM_USE_BREAKABLE_CUDAGRAPH
    )
    connector = vllm_config.kv_transfer_config
    return ServerFacts(
        on_cpu=vllm_config.device_config.device_type == "cpu",
        is_asynchronous=bool(vllm_config.scheduler_config.async_scheduling),
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        prefill_context_parallel_size=parallel.prefill_context_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        splits_batches=parallel.use_ubatching,
        moves_experts=parallel.enable_eplb or parallel.enable_elastic_ep,
        kv_connector=(connector.kv_connector or "a KV connector") if connector is not None else "",
        has_fast_prefill=vllm_config.cache_config.kv_sharing_fast_prefill,
        logits_processors=_logits_processors(vllm_config.model_config),
        full_cuda_graphs=mode.has_full_cudagraphs(),
        captures_kv_writes=mode.has_piecewise_cudagraphs() and not splits_at_writes,
        fused_kv_writes=tuple(name for name in _FUSED_KV_WRITES if getattr(compilation.pass_config, name)),
    )


def _logits_processors(model_config: "ModelConfig") -> tuple[str, ...]:
    given = [name if isinstance(name, str) else name.__name__ for name in model_config.logits_processors or ()]
    return (*given, *(point.value for point in entry_points(group="vllm.logits_processors")))
