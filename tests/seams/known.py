"""What the plugin's code does not show: features, classes of some variables, and names that are used indirectly."""

# Per feature, modules of the plugin that use vLLM for it; the most specific one counts. Trees, heads and draft models
# need chains, too; heads also need what draft models need.
FEATURES = {
    "chains": (
        *(f"compat.{name}" for name in ("cpu", "cuda", "kv_cache", "runner", "sampling", "scheduler")),
        *("drafting", "forward", "kv", "scheduling", "verification"),
    ),
    "trees": ("compat.tree_attention", "forward.trees", "kv.tree_forks"),
    "heads": ("compat.eagle3", "drafting.head_engine", "drafting.target_states"),
    "draft models": ("compat.draft_attention", "compat.draft_model", "compat.draft_pass", "drafting.draft_engine"),
    "vLLM's drafters": ("compat.cpu_sampler", "compat.native", "scheduling.native", "scheduling.native_adapter"),
    "texts on V2": ("compat.v2", "scheduling.text", "scheduling.text_drafts"),
    "CPU passes": ("compat.cpu_pass", "compat.cpu_head_pass"),
    "API": ("compat.engine_args", "compat.frontend", "compat.openai_api", "register"),
    "gate": ("compat.engine_choice", "compat.installed", "compat.read_facts"),
    "tools": ("vllm_spec_tools",),
}

# Names that only code for some versions of vLLM uses, and these versions: {"vllm.module:name": ">=0.33"}.
ONLY: dict[str, str] = {}

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
    "request": ("vllm.v1.request:Request",),
    "rows": ("vllm.v1.outputs:LogprobsLists",),
    "req_states": ("vllm.v1.worker.gpu.states:RequestState",),
    "runner": ("vllm.v1.worker.cpu_model_runner:CPUModelRunner", "vllm.v1.worker.gpu.model_runner:GPUModelRunner"),
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

# Names, "module:Class.method", that a module of the plugin depends on in ways that a reader of its code can't find.
BY_HAND = {
    # The argument order of kernels that it calls; where `do_not_compile` is read, which it sets.
    "compat.cpu_pass": (
        "vllm._custom_ops:cpu_attention_with_kv_cache",
        "vllm._custom_ops:cpu_attn_get_scheduler_metadata",
        "vllm._custom_ops:cpu_attn_reshape_and_cache",
        "vllm.compilation.decorators:_support_torch_compile",
    ),
    # Set late, and copied to the draft's; called by its type.
    "compat.draft_attention": (
        "vllm.config.cache:CacheConfig.block_size",
        "vllm.config.cache:CacheConfig.kv_cache_layout",
        "vllm.config.cache:CacheConfig.num_gpu_blocks",
        "vllm.v1.worker.utils:AttentionGroup.__init__",
    ),
    # Set or copied for the draft.
    "compat.draft_model": (
        "vllm.config.cache:CacheConfig.sliding_window",
        "vllm.config.vllm:VllmConfig.structured_outputs_config",
    ),
    # On the way to the live runner.
    "vllm_spec_tools.inspection": (
        "vllm.v1.engine.core:EngineCore.model_executor",
        "vllm.v1.engine.core_client:InprocClient.engine_core",
        "vllm.v1.executor.uniproc_executor:UniProcExecutor.driver_worker",
        "vllm.v1.worker.worker_base:WorkerWrapperBase.worker",
    ),
    # Read by name; known by the name of the class.
    "compat.read_facts": (
        "vllm.config.compilation:PassConfig.fuse_qk_norm_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache_cat_mla",
        "vllm.v1.kv_cache_interface:ChunkedLocalAttentionSpec",
        "vllm.v1.kv_cache_interface:CrossAttentionSpec",
        "vllm.v1.kv_cache_interface:EncoderOnlyAttentionSpec",
        "vllm.v1.kv_cache_interface:MLAAttentionSpec",
        "vllm.v1.kv_cache_interface:MambaSpec",
        "vllm.v1.kv_cache_interface:SlidingWindowMLASpec",
        "vllm.v1.kv_cache_interface:SlidingWindowSpec",
    ),
    # Wrapped.
    "compat.tree_attention": (
        "vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.do_kv_cache_update",
        "vllm.v1.attention.backends.flashinfer:FlashInferImpl.do_kv_cache_update",
        "vllm.v1.attention.backends.triton_attn:TritonAttentionImpl.do_kv_cache_update",
    ),
    # Builds it.
    "drafting.drafter": ("vllm.v1.spec_decode.custom_class_proposer:create_custom_proposer",),
    # Calls it.
    "register.plugin": ("vllm.plugins:load_general_plugins",),
    # 0 for `custom_class`: the plugin reserves.
    "scheduling.draft_blocks": ("vllm.config.vllm:VllmConfig.num_lookahead_tokens",),
}
