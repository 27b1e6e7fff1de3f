"""Makes tiny models of many architectures with random weights, and prompts for them."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 512
# Shorter than the prompts, so that texts go beyond it.
WINDOW = 64
# Random logits are nearly flat: larger weights tell the likeliest tokens apart.
_SHARPNESS = 2.5
_USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    # Where the output layer is the embedding, such a model says the last token again.
    "tie_word_embeddings": False,
}
# Where it is not the hidden size over the number of heads.
_HEADS: dict[str, Any] = {"head_dim": 32}
# Heads of keys and values are not shared. Configs that know no other way would keep the entry nevertheless.
_NO_GROUPS: dict[str, Any] = {"num_key_value_heads": 4}
_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
_WINDOW_THEN_FULL: dict[str, Any] = {
    **_HEADS,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}
_MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_d_state": 32,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 64,
}

# Per name: transformers' model type, and what differs from the usual shape.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", _HEADS),
    "qwen3_moe": ("qwen3_moe", _HEADS | _EXPERTS),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "gemma2": ("gemma2", {**_WINDOW_THEN_FULL, "query_pre_attn_scalar": 32, "tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", {**_WINDOW_THEN_FULL, "query_pre_attn_scalar": 32}),
    "phi3": ("phi3", {}),
    "opt": ("opt", {**_NO_GROUPS, "ffn_dim": 256, "word_embed_proj_dim": 128}),
    "gpt2": ("gpt2", {**_NO_GROUPS, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 2048, "n_inner": 256}),
    "gpt_neox": ("gpt_neox", _NO_GROUPS | {"initializer_range": 0.04}),
    "olmo2": ("olmo2", {}),
    "granite": ("granite", {"embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.8}),
    # Attention with linear biases instead of positions.
    "falcon": ("falcon", {**_NO_GROUPS, "alibi": True, "multi_query": False, "new_decoder_architecture": False}),
    "deepseek_v2": (
        "deepseek_v2",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            # vLLM's CPU kernel of multi-head latent attention takes these sizes only.
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 64,
            "v_head_dim": 64,
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
        },
    ),
    "gpt_oss": ("gpt_oss", {**_WINDOW_THEN_FULL, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mamba2": ("mamba2", {"num_heads": 8, "head_dim": 32, "state_size": 32, "n_groups": 1, "chunk_size": 64}),
    "granite_moe_hybrid": (
        "granitemoehybrid",
        {
            **_MAMBA2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        {
            **_HEADS,
            **_EXPERTS,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "shared_expert_intermediate_size": 64,
        },
    ),
    "lfm2": (
        "lfm2",
        {
            "layer_types": ["conv", "full_attention"],
            "conv_L_cache": 3,
            "conv_dim": 128,
            "block_dim": 128,
            "block_norm_eps": 1e-5,
        },
    ),
}


def tiny_model(name: str, folder: Path, noise: float = 0.0, shape: Mapping[str, Any] | None = None) -> Path:
    """Makes a model, unless `folder` has it already. It has no tokenizer: use `skip_tokenizer_init=True`.

    Args:
        name: a key of `ARCHITECTURES`.
        folder: where models are kept.
        noise: standard deviation of what is added to each weight, relative to the deviation of its tensor. A
            model with 0.05 is a draft of the one without, with about half of its greedy drafts accepted.
        shape: entries of its config in place of the usual ones.

    Returns:
        The model's folder.
    """
    entries = [f"{key}{value}" for key, value in (shape or {}).items()]
    path = folder / "-".join([name, *([f"noise{noise:g}"] if noise else []), *entries])
    if path.exists():
        return path
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, differing = ARCHITECTURES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(model_type, **(_USUAL | differing | dict(shape or {})))
        ).float()
        tied = model.get_input_embeddings().weight if model.config.tie_word_embeddings else None
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1 and weight is not tied:
                    weight.mul_(_SHARPNESS)
            if noise:
                for weight in model.parameters():
                    weight.add_(torch.randn_like(weight), alpha=noise * float(weight.std(correction=0)))
    partial = path.with_name(path.name + ".partial")
    model.save_pretrained(partial)
    partial.rename(path)
    return path


def tiny_eagle3(folder: Path) -> Path:
    """Makes an EAGLE-3 head with random weights for the models of `tiny_model`, unless it is there.

    It takes hidden states before and after their first layer, and predicts an eighth of their vocabulary.

    Returns:
        The head's folder.
    """
    path = folder / "eagle3"
    if path.exists():
        return path
    from tests.unit.proposers.eagle3.folders import random_state, write

    layer = {key: value for key, value in _USUAL.items() if not key.endswith("token_id")}
    config = layer | {
        **{"model_type": "llama", "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "draft_vocab_size": VOCABULARY // 8},
        "architectures": ["LlamaForCausalLMEagle3"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]},
    }
    state = random_state(config, seed=2)
    scaled = {name: tensor / tensor.shape[-1] ** 0.5 for name, tensor in state.items() if tensor.is_floating_point()}
    partial = path.with_name(f"{path.name}.partial")
    write(partial, config, state | scaled)
    partial.rename(path)
    return path


def tiny_medusa(model: Path) -> Path:
    """Makes three Medusa heads for a model of `tiny_model`, unless they are there.

    They are fitted by least squares to its greedy continuations of `repeating_prompts`, so they are often right there.

    Returns:
        The heads' folder.
    """
    path = model.with_name(f"{model.name}-medusa")
    if path.exists():
        return path
    import torch
    from transformers import AutoModelForCausalLM

    from vllm_spec_plugin.proposers.medusa.checkpoint import save_heads
    from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads

    num_heads, num_new = 3, 32
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    states: list[torch.Tensor] = []
    target.get_output_embeddings().register_forward_pre_hook(lambda _, given: states.append(given[0][0]))
    before, after = [], []
    with torch.inference_mode():
        for prompt in repeating_prompts(16):
            text = list(prompt)
            for _ in range(num_new):
                states.clear()
                text.append(int(target(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
            # The state at position t is followed by tokens t + 1, t + 2 and so on; head k gives token t + 1 + k.
            for t in range(len(prompt) - 1, len(text) - num_heads - 1):
                before.append(states[0][t])
                after.append(text[t + 2 : t + 2 + num_heads])
    inputs, tokens = torch.stack(before), torch.tensor(after)
    heads = MedusaHeads(inputs.shape[1], target.config.vocab_size, num_heads, 1)
    squares = inputs.T @ inputs + 1e-2 * torch.eye(inputs.shape[1])
    for head in range(num_heads):
        wanted = torch.nn.functional.one_hot(tokens[:, head], target.config.vocab_size).float()
        heads.projection.data[head] = 10 * torch.linalg.solve(squares, inputs.T @ wanted)
    partial = path.with_name(f"{path.name}.partial")
    save_heads(heads, partial, {}, torch.float32)
    partial.rename(path)
    return path


def tiny_mtp(folder: Path) -> Path:
    """Makes a MiMo, which is a Qwen2 with a layer that predicts one more token, unless it is there; returns its folder.

    That layer computes the target's first layer over the embeddings alone, and the target's second adds little: it is
    often right. The output layer is larger than in other models, so that likely tokens stand out at temperature 1.
    """
    path = folder / "mtp"
    if path.exists():
        return path
    import torch
    from safetensors.torch import load_file, save_file

    base = tiny_model("qwen2", folder)
    tensors = load_file(base / "model.safetensors")
    tensors["lm_head.weight"] *= 6
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.1.{name}.weight"] *= 0.2
    embeddings, hidden = tensors["model.embed_tokens.weight"], _USUAL["hidden_size"]
    layer = {name.removeprefix("model.layers.0."): value for name, value in tensors.items() if ".layers.0." in name}
    layer |= {
        "token_layernorm.weight": embeddings.square().mean().sqrt().expand(hidden),
        "hidden_layernorm.weight": torch.ones(hidden),
        "input_proj.weight": torch.eye(2 * hidden)[hidden:],
        "final_layernorm.weight": tensors["model.norm.weight"],
    }
    tensors |= {f"model.mtp_layers.0.{name}": value.clone() for name, value in layer.items()}
    config = json.loads((base / "config.json").read_text())
    config |= {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir(exist_ok=True)
    save_file(tensors, partial / "model.safetensors")
    (partial / "config.json").write_text(json.dumps(config))
    partial.rename(path)
    return path


def tiny_adapter(model: Path) -> Path:
    """Makes a LoRA adapter of a Llama from `tiny_model` with random weights, unless it is there; returns its folder."""
    path = model.with_name(f"{model.name}-lora")
    if path.exists():
        return path
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    rank, modules = 8, ("q_proj", "v_proj", "down_proj")
    draw = torch.Generator().manual_seed(1)
    tensors = {}
    with safe_open(model / "model.safetensors", "pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (it is no dict)
            if any(f".{module}." in name for module in modules):
                num_outputs, num_inputs = weights.get_slice(name).get_shape()
                prefix = f"base_model.model.{name.removesuffix('.weight')}"
                tensors[f"{prefix}.lora_A.weight"] = torch.randn(rank, num_inputs, generator=draw) / num_inputs**0.5
                tensors[f"{prefix}.lora_B.weight"] = torch.randn(num_outputs, rank, generator=draw) / 16
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir(exist_ok=True)
    save_file(tensors, partial / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(modules), "bias": "none"}
    (partial / "adapter_config.json").write_text(json.dumps(config))
    partial.rename(path)
    return path


def repeating_prompts(num_prompts: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Prompts of 20 to 160 random token ids that repeat passages of themselves."""
    draw = random.Random(seed)
    prompts = []
    for _ in range(num_prompts):
        passage = [draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(5, 40))]
        prompts.append(tuple((passage * 4)[: max(20, 4 * len(passage) - draw.randrange(5))]))
    return prompts
