"""The head that training starts from."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from vllm_spec_plugin.proposers.eagle3.layout import NUM_AUX_LAYERS, HeadConfig, default_aux_layers
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.eagle3.options import Eagle3Options
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.rows import Row

DRAFT_VOCABULARY = 32_000  # as published heads have


def frequent_tokens(rows: Iterable[Row], count: int, vocab_size: int) -> torch.Tensor:
    """Returns the most frequent tokens of texts, [count] int64, ascending; of equally frequent ones the lowest."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(row.tokens.tolist())
    order = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(order[:count]), dtype=torch.int64)


def new_config(backbone: Backbone, options: Eagle3Options) -> HeadConfig:
    """Creates the config of a head with one layer of the target's sizes.

    Raises:
        UserError: an option does not fit the target.
    """
    target = backbone.model.config.get_text_config()
    heads = target.num_attention_heads
    layer: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": backbone.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_attention_heads": heads,
        "num_key_value_heads": getattr(target, "num_key_value_heads", None) or heads,
        "head_dim": getattr(target, "head_dim", None) or backbone.hidden_size // heads,
        "num_hidden_layers": 1,
        "vocab_size": backbone.vocab_size,
        "hidden_act": "silu",
        "max_position_embeddings": backbone.context or 2048,
        "rms_norm_eps": getattr(target, "rms_norm_eps", 1e-6),
        "rope_parameters": _rope(target),
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
    count = min(backbone.vocab_size, DRAFT_VOCABULARY) if options.draft_vocab is None else options.draft_vocab
    if count > backbone.vocab_size:
        raise UserError(f"--draft-vocab: got {count}; allowed: up to {backbone.vocab_size}, the model's vocabulary")
    return HeadConfig(
        layout="speculators",
        hidden_size=backbone.hidden_size,
        target_hidden_size=backbone.hidden_size,
        intermediate_size=layer["intermediate_size"],
        num_heads=heads,
        num_kv_heads=layer["num_key_value_heads"],
        head_dim=layer["head_dim"],
        num_layers=1,
        vocab_size=backbone.vocab_size,
        draft_vocab_size=count,
        aux_layers=_aux_layers(options.aux_layers, target.num_hidden_layers),
        norm_before_residual=True,
        layer=layer,
        base_model=options.model,
    )


def new_head(backbone: Backbone, config: HeadConfig, target_ids: torch.Tensor, seed: int) -> Eagle3Head:
    """Creates a random head with the target's output layer, which training changes."""
    torch.manual_seed(seed)
    head = Eagle3Head(config)
    with torch.no_grad():
        head.lm_head.weight.copy_(backbone.output_layer.weight[target_ids.to(backbone.device)].float())
    return head.to(backbone.device)


def _aux_layers(given: tuple[int, ...] | None, num_layers: int) -> tuple[int, ...]:
    if given is None:
        layers = default_aux_layers(num_layers)
        if len(layers) < NUM_AUX_LAYERS or layers[-1] >= num_layers:
            layers = tuple(range(num_layers))[-NUM_AUX_LAYERS:]
        given = layers
    # vLLM takes the number of a head's layers from its tensors' default.
    if len(given) != NUM_AUX_LAYERS or sorted(set(given)) != list(given) or not 0 <= given[0] <= given[-1] < num_layers:
        shown = " ".join(map(str, given))
        raise UserError(
            f"--aux-layers: got {shown}; allowed: {NUM_AUX_LAYERS} layers from 0 to {num_layers - 1} in ascending "
            f"order, of a model with at least {NUM_AUX_LAYERS} layers"
        )
    return given


def _rope(target: Any) -> dict[str, Any]:
    """Returns the target's rotary embedding if all its layers have one, else the default one."""
    given = getattr(target, "rope_parameters", None) or {}
    return dict(given) if "rope_type" in given else {"rope_type": "default", "rope_theta": 10000.0}
