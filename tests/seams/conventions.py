"""What the plugin calls the variables that hold vLLM's objects, where no annotation tells their class."""

# The modules that hold objects of vLLM's.
HELD_IN = (
    "vllm_spec_plugin.compat",
    "vllm_spec_plugin.scheduling",
    "vllm_spec_plugin.verification.constraints",
    "vllm_spec_plugin.verification.sampler",
    "vllm_spec_plugin.worker",
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
