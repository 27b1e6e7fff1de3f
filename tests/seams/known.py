"""Lists facts that the plugin's code does not show: features, classes of some variables, names used indirectly."""

# Per feature, modules of the plugin that use vLLM for it; the most specific one counts. V1's trees, heads and draft
# models need its chains, too; heads also need what draft models need.
FEATURES = {
    "V1's chains": ("compat.cpu", "compat.cuda", "compat.runner", "v1"),
    "V1's trees": ("v1.compat.tree_attention", "v1.trees", "v1.kv.tree_forks"),
    "V1's heads": ("v1.compat.eagle3", "v1.drafting.head_engine", "v1.drafting.target_states"),
    "V1's draft models": (
        *(f"v1.compat.{name}" for name in ("draft_attention", "draft_model", "draft_pass")),
        "v1.drafting.draft_engine",
    ),
    "V1's CPU passes": ("v1.compat.cpu_pass", "v1.compat.cpu_head_pass"),
    "scheduling": (*(f"compat.{name}" for name in ("kv_cache", "scheduler", "step_blocks")), "scheduling", "worker"),
    "vLLM's drafters": ("v1.compat.cpu_sampler", "compat.native", "scheduling.native"),
    "rests of vLLM's drafters": ("compat.catch_up", "compat.resting", "worker.resting", "scheduling.resting"),
    "token-only proposers on V2": (
        "compat.v2",
        "worker.on_v2",
        "scheduling.token_only",
        "scheduling.token_only_drafts",
    ),
    "drafts from grammars": ("compat.grammars",),
    "verification on V2": ("compat.v2_verification", "worker.verification"),
    "API": (
        *(f"compat.{name}" for name in ("early_refusal", "engine_args", "frontend", "openai_api", "v2_limits")),
        "register",
    ),
    "gate": ("compat.drafter_model", "compat.engine_choice", "compat.installed", "compat.read_facts", "gate"),
    "tools": ("vllm_spec_tools",),
}

# Names that only code for some versions of vLLM uses, and these versions: {"vllm.module:name": ">=0.33"}.
ONLY: dict[str, str] = {}

# Names, "module:Class.method", that a module of the plugin depends on in ways that a reader of its code can't find.
BY_HAND = {
    # The argument order of kernels that it calls; where `do_not_compile` is read, which it sets.
    "v1.compat.cpu_pass": (
        "vllm._custom_ops:cpu_attention_with_kv_cache",
        "vllm._custom_ops:cpu_attn_get_scheduler_metadata",
        "vllm._custom_ops:cpu_attn_reshape_and_cache",
        "vllm.compilation.decorators:_support_torch_compile",
    ),
    # Methods of V2's draft model, called on the live one.
    "compat.catch_up": (
        "vllm.v1.worker.gpu.spec_decode.speculator:DraftModelSpeculator._build_attn_metadata",
        "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator:StandaloneARSpeculator._run_model",
        "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator:StandaloneARSpeculator.propose",
    ),
    # Methods of V1's, as well.
    "compat.resting": (
        "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer.propose",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._sample",
    ),
    # Set late, and copied to the draft's.
    "v1.compat.draft_attention": (
        "vllm.config.cache:CacheConfig.block_size",
        "vllm.config.cache:CacheConfig.kv_cache_layout",
        "vllm.config.cache:CacheConfig.num_gpu_blocks",
    ),
    # Set or copied for the draft.
    "v1.compat.draft_model": (
        "vllm.config.cache:CacheConfig.sliding_window",
        "vllm.config.vllm:VllmConfig.structured_outputs_config",
    ),
    # On the way to the live runner.
    "vllm_spec_tools.engines.inspection": (
        "vllm.v1.executor.uniproc_executor:UniProcExecutor.driver_worker",
        "vllm.v1.worker.worker_base:WorkerWrapperBase.worker",
    ),
    # Overrides what it calls of the runner.
    "compat.runner": (
        "vllm.v1.worker.cpu_model_runner:CPUModelRunner._sync_device",
        "vllm.v1.worker.cpu_model_runner:CPUModelRunner.get_model",
        "vllm.v1.worker.cpu_model_runner:CPUModelRunner.model",
    ),
    # Read by name.
    "compat.read_facts": (
        "vllm.config.compilation:PassConfig.fuse_qk_norm_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache_cat_mla",
    ),
    # Wrapped.
    "v1.compat.tree_attention": (
        "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.do_kv_cache_update",
        "vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.do_kv_cache_update",
        "vllm.v1.attention.backends.flashinfer:FlashInferImpl.do_kv_cache_update",
        "vllm.v1.attention.backends.triton_attn:TritonAttentionImpl.do_kv_cache_update",
    ),
    # Builds it.
    "v1.drafting.drafter": ("vllm.v1.spec_decode.custom_class_proposer:create_custom_proposer",),
    # Calls it.
    "register.plugin": ("vllm.plugins:load_general_plugins",),
    # 0 for `custom_class`: the plugin reserves.
    "v1.scheduling.draft_blocks": ("vllm.config.vllm:VllmConfig.num_lookahead_tokens",),
}
