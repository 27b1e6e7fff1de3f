"""The keys and methods of vLLM's `--speculative-config` JSON, and what stands for them in a plugin.yaml."""

from typing import NamedTuple

# The vLLMs whose keys and methods are here.
VERSIONS = "0.32 and 0.33"


class VllmKey(NamedTuple):
    """Counterpart in a plugin.yaml of a key in vLLM's configuration.

    Attributes:
        here: dotted key of the plugin.yaml that takes the value; empty if there is none.
        reason: what the plugin does instead, or why it refuses the key.
        is_refused: whether a value other than vLLM's default cannot be converted.
    """

    here: str = ""
    reason: str = ""
    is_refused: bool = False


_FLY = VllmKey(reason="only vLLM's fly uses it, which is lossy; here: verification.lenience")
_SYNTHETIC = VllmKey(reason="outputs would not have the target's distribution", is_refused=True)
_INTERNAL = VllmKey(reason="vLLM fills it in itself", is_refused=True)
_ADAPTIVE = "draft_length.policy optimal chooses each request's draft length by measured acceptance and time"
_NO_EFFECT = "it has no effect on the plugin's proposers"
_TARGETS = "the draft model has the target's"

KEYS = {
    "enforce_eager": VllmKey(reason="give vllm serve --enforce-eager; the draft model follows the target"),
    "num_speculative_tokens": VllmKey("draft_length.tokens"),
    "model": VllmKey("proposer.model"),
    "method": VllmKey("proposer.method"),
    "draft_tensor_parallel_size": VllmKey(reason=f"{_TARGETS} tensor-parallel size, as both share KV blocks"),
    "tensor_parallel_size": VllmKey(reason=f"vLLM refuses it, too; {_TARGETS} tensor-parallel size", is_refused=True),
    "quantization": VllmKey("proposer.quantization"),
    "moe_backend": VllmKey(reason=f"{_TARGETS} backend of experts"),
    "attention_backend": VllmKey(
        reason="vLLM chooses the draft model's attention backend by its layers; --attention-backend is the target's"
    ),
    "kv_cache_dtype": VllmKey(
        reason=f"{_TARGETS} data type of keys and values (vllm serve --kv-cache-dtype), as both share KV blocks"
    ),
    "max_model_len": VllmKey("proposer.max_model_len", "the draft model's context is what its config says"),
    "revision": VllmKey("proposer.revision", "the hub's default branch is loaded; give a local folder for another one"),
    "code_revision": VllmKey("proposer.code_revision", "code is loaded from the hub's default branch"),
    "index_share_for_mtp_iteration": VllmKey(reason="the plugin has no MTP", is_refused=True),
    "disable_padded_drafter_batch": VllmKey(reason=_NO_EFFECT),
    "disable_eagle_block_drop": VllmKey(reason=_NO_EFFECT),
    "disable_lookahead_block_hashes": VllmKey(reason=_NO_EFFECT),
    "draft_lm_head_quantization": VllmKey(reason="the draft's output layer is loaded as it is saved"),
    "use_local_argmax_reduction": VllmKey(reason=_NO_EFFECT),
    "use_heterogeneous_vocab": VllmKey(
        reason="the draft model must have the target's vocabulary; choose a small model of the target's family",
        is_refused=True,
    ),
    "prompt_lookup_max": VllmKey(reason="the longest match is used, of any length"),
    "prompt_lookup_min": VllmKey("proposer.min_order"),
    "parallel_drafting": VllmKey(
        reason="models for parallel drafting are not served; choose a draft model that predicts the next token",
        is_refused=True,
    ),
    "target_model_config": _INTERNAL,
    "target_parallel_config": _INTERNAL,
    "num_speculative_tokens_per_batch_size": VllmKey(reason=_ADAPTIVE),
    "draft_model_config": _INTERNAL,
    "draft_parallel_config": _INTERNAL,
    "suffix_decoding_max_tree_depth": VllmKey(reason="matches have no maximum length"),
    "suffix_decoding_max_cached_requests": VllmKey(
        reason="drafting from earlier responses is off; proposer.shared: true turns it on, with a cache_salt per tenant"
    ),
    "suffix_decoding_max_spec_factor": VllmKey(
        reason="drafts end by their estimated acceptance instead (proposer.min_probability)"
    ),
    "suffix_decoding_min_token_prob": VllmKey(
        reason="proposer.min_probability is about whole drafts, on another scale; its default is kept"
    ),
    "draft_load_config": VllmKey(reason=f"{_TARGETS} load options (vllm serve --load-format)"),
    "rejection_sample_method": VllmKey("verification.method"),
    "synthetic_acceptance_rates": _SYNTHETIC,
    "synthetic_acceptance_length": _SYNTHETIC,
    "enable_adaptive_verification": VllmKey(reason=_ADAPTIVE),
    "draft_sample_method": VllmKey("proposer.draft_sampling", "its greedy drafts are the default here"),
    "dspark_draft_topk": VllmKey(reason="the plugin has no DSpark", is_refused=True),
    "xpress_topc": VllmKey(reason="the plugin has no XPress", is_refused=True),
    "fly_window_size": _FLY,
    "fly_entropy_threshold": _FLY,
    "fly_entropy_top_k": _FLY,
}

_BY_VLLM = "the plugin has no proposer for it; vLLM's drafter serves it: {method: vllm, config: {method: %s, ...}}"
# Methods of vLLM without a proposer of that name in the plugin.
METHODS = {
    "ngram_gpu": "ngram is the plugin's n-gram method",
    "eagle": _BY_VLLM % "eagle",
    "mlp_speculator": _BY_VLLM % "mlp_speculator" + " with vLLM 0.32, not with 0.33",
    "mtp": _BY_VLLM % "mtp",
    "dflash": _BY_VLLM % "dflash",
    "dspark": _BY_VLLM % "dspark",
    "extract_hidden_states": "it drafts nothing; use it without the plugin",
    "custom_class": "the plugin uses it itself; see CONTRIBUTING.md for proposers of your own",
}


# Settings that people look for in the section of the draft model, and vLLM has elsewhere.
_OTHERS = {
    "trust_remote_code": "give vllm serve --trust-remote-code; it also applies to the draft model",
    "load_format": "give vllm serve --load-format; it also applies to the draft model",
}


def reason_against(method: object) -> str:
    """Returns why the plugin has no proposer for a vLLM method; empty if vLLM has no such method."""
    if not isinstance(method, str):
        return ""
    return METHODS.get("mtp" if method.endswith("_mtp") else method, "")


def hint_for_key(key: str) -> str:
    """Ends a message about a key that is vLLM's, not the plugin's; empty for other keys."""
    if key in _OTHERS:
        return f"; {_OTHERS[key]}"
    known = KEYS.get(key)
    if known is None:
        return ""
    # Where the plugin has the key under the same name, it is another method's or section's.
    hint = known.reason if known.here.endswith(f".{key}") else known.here or known.reason
    if not hint:
        return ""
    return f"; {key} is a key of vLLM's own JSON; here: {hint} (`vllm-spec convert` translates it)"
