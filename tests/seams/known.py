"""What the plugin's code does not show: the classes of some variables, and names that are used indirectly."""

# The modules that hold objects of vLLM's.
HELD_IN = (
    "vllm_spec_plugin.compat",
    "vllm_spec_plugin.drafting",
    "vllm_spec_plugin.kv",
    "vllm_spec_plugin.register",
    "vllm_spec_plugin.scheduling",
    "vllm_spec_plugin.verification.constraints",
    "vllm_spec_plugin.verification.sampler",
    "vllm_spec_plugin.forward",
)

_RUNNER_OUTPUT = "vllm.v1.outputs:ModelRunnerOutput"
_PROCESSORS = (
    "vllm.v1.sample.logits_processor:MinTokensLogitsProcessor",
    "vllm.v1.sample.logits_processor:LogitBiasLogitsProcessor",
    "vllm.v1.sample.logits_processor:MinPLogitsProcessor",
)
_ATTENTION_LAYERS = (
    "vllm.model_executor.layers.attention:Attention",
    "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase",
)

# By a variable's name, the classes that it may be of: the first that has the attribute counts.
CONVENTIONS = {
    "answer": ("vllm.v1.engine:EngineCoreOutputs",),
    "backend": ("vllm.v1.attention.backend:AttentionBackend",),
    "b": ("vllm.v1.attention.backend:AttentionBackend",),
    "batch": ("vllm.v1.worker.gpu_input_batch:InputBatch",),
    "block": ("vllm.v1.core.kv_cache_utils:KVCacheBlock",),
    "builder": ("vllm.v1.attention.backends.cpu_attn:CPUAttentionMetadataBuilder",),
    "cached": ("vllm.v1.core.sched.output:CachedRequestData",),
    "compilation": ("vllm.config:CompilationConfig",),
    "config": ("vllm.config:ModelConfig",),
    "connector": ("vllm.config:KVTransferConfig",),
    "draft": ("vllm.config:ModelConfig",),
    "earlier": ("vllm.v1.engine:EngineCoreOutput",),
    "engine": ("vllm.v1.engine.llm_engine:LLMEngine",),
    "engine_args": ("vllm.engine.arg_utils:EngineArgs",),
    "group": ("vllm.v1.worker.utils:AttentionGroup", "vllm.v1.kv_cache_interface:KVCacheGroupSpec"),
    "holder": ("vllm.v1.sample.thinking_budget_state:ThinkingBudgetStateHolder",),
    "impl": (
        "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl",
        "vllm.v1.attention.backend:AttentionImpl",
    ),
    "layer": _ATTENTION_LAYERS,
    "manager": ("vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager",),
    "metadata": (
        "vllm.v1.sample.metadata:SamplingMetadata",
        "vllm.v1.spec_decode.metadata:SpecDecodeMetadata",
    ),
    "mine": ("vllm.v1.worker.utils:AttentionGroup",),
    "mode": ("vllm.config:CUDAGraphMode",),
    "model_config": ("vllm.config:ModelConfig",),
    "model_runner_output": (_RUNNER_OUTPUT,),
    "new": ("vllm.v1.core.sched.output:NewRequestData",),
    "output": ("vllm.v1.engine:EngineCoreOutput", "vllm.v1.core.sched.output:SchedulerOutput", _RUNNER_OUTPUT),
    "parallel": ("vllm.config:ParallelConfig",),
    "pool": ("vllm.v1.core.block_pool:BlockPool",),
    "processor": _PROCESSORS,
    "rows": ("vllm.v1.outputs:LogprobsLists",),
    "runner": ("vllm.v1.worker.cpu_model_runner:CPUModelRunner",),
    "sampler": ("vllm.v1.sample.sampler:Sampler",),
    "sampling_metadata": ("vllm.v1.sample.metadata:SamplingMetadata",),
    "scheduler": ("vllm.v1.core.sched.scheduler:Scheduler",),
    "scheduler_output": ("vllm.v1.core.sched.output:SchedulerOutput",),
    "scheduler_stats": ("vllm.v1.metrics.stats:SchedulerStats",),
    "shared": ("vllm.v1.kv_cache_interface:UniformTypeKVCacheSpecs", "vllm.v1.kv_cache_interface:KVCacheSpec"),
    "spec": ("vllm.v1.kv_cache_interface:FullAttentionSpec",),
    "spec_decode_metadata": ("vllm.v1.spec_decode.metadata:SpecDecodeMetadata",),
    "speculative_config": ("vllm.config:SpeculativeConfig",),
    "stats": ("vllm.v1.metrics.stats:SchedulerStats",),
    "table": ("vllm.v1.worker.block_table:BlockTable",),
    "tables": ("vllm.v1.worker.block_table:MultiGroupBlockTable",),
    "target": ("vllm.config:ModelConfig",),
    "vllm_config": ("vllm.config:VllmConfig",),
}

_CPU_KERNEL = "argument order of the kernel that `compat.cpu_pass` calls"
_KV_WRITE = "wrapped by `compat.tree_attention`"
_LIVE = "on the way to the live runner in `compat.inspection`"
_SET_LATE = "copied to the draft's by `compat.draft_attention`"
_FUSED = "read by name in `compat.reading`"
_SPEC = "known by the name of its class in `compat.reading`"

# Names, "module:Class.method", that the plugin depends on in ways that a reader of its code can't find, and how.
BY_HAND = {
    "vllm._custom_ops:cpu_attention_with_kv_cache": _CPU_KERNEL,
    "vllm._custom_ops:cpu_attn_get_scheduler_metadata": _CPU_KERNEL,
    "vllm._custom_ops:cpu_attn_reshape_and_cache": _CPU_KERNEL,
    "vllm.compilation.decorators:_support_torch_compile": "`do_not_compile`, set by `compat.cpu_pass`",
    "vllm.config.cache:CacheConfig.block_size": _SET_LATE,
    "vllm.config.cache:CacheConfig.kv_cache_layout": _SET_LATE,
    "vllm.config.cache:CacheConfig.num_gpu_blocks": _SET_LATE,
    "vllm.config.cache:CacheConfig.sliding_window": "set for the draft by `compat.draft_model`",
    "vllm.config.compilation:PassConfig.fuse_qk_norm_rope_kvcache": _FUSED,
    "vllm.config.compilation:PassConfig.fuse_rope_kvcache": _FUSED,
    "vllm.config.compilation:PassConfig.fuse_rope_kvcache_cat_mla": _FUSED,
    "vllm.config.vllm:VllmConfig.num_lookahead_tokens": "0 for `custom_class`: `scheduling.draft_blocks` reserves",
    "vllm.config.vllm:VllmConfig.structured_outputs_config": "copied for the draft by `compat.draft_model`",
    "vllm.plugins:load_general_plugins": "calls `plugin.register`",
    "vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.do_kv_cache_update": _KV_WRITE,
    "vllm.v1.attention.backends.flashinfer:FlashInferImpl.do_kv_cache_update": _KV_WRITE,
    "vllm.v1.attention.backends.triton_attn:TritonAttentionImpl.do_kv_cache_update": _KV_WRITE,
    "vllm.v1.engine.core:EngineCore.model_executor": _LIVE,
    "vllm.v1.engine.core_client:InprocClient.engine_core": _LIVE,
    "vllm.v1.executor.uniproc_executor:UniProcExecutor.driver_worker": _LIVE,
    "vllm.v1.kv_cache_interface:ChunkedLocalAttentionSpec": _SPEC,
    "vllm.v1.kv_cache_interface:CrossAttentionSpec": _SPEC,
    "vllm.v1.kv_cache_interface:EncoderOnlyAttentionSpec": _SPEC,
    "vllm.v1.kv_cache_interface:MLAAttentionSpec": _SPEC,
    "vllm.v1.kv_cache_interface:MambaSpec": _SPEC,
    "vllm.v1.kv_cache_interface:SlidingWindowMLASpec": _SPEC,
    "vllm.v1.kv_cache_interface:SlidingWindowSpec": _SPEC,
    "vllm.v1.spec_decode.custom_class_proposer:create_custom_proposer": "builds `worker.drafter.Drafter`",
    "vllm.v1.worker.utils:AttentionGroup.__init__": "called by its type in `compat.draft_attention`",
    "vllm.v1.worker.worker_base:WorkerWrapperBase.worker": _LIVE,
}
