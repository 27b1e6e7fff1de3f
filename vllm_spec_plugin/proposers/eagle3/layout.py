"""Reads the config.json of an EAGLE-3 head, in the original layout or that of speculators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.schema.errors import show

NUM_AUX_LAYERS = 3
"""Auxiliary layers of a head that names none, as in vLLM."""
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
# What vLLM's class for Llama heads computes otherwise, with the value of heads that this package computes.
_REFUSED = {"attention_bias": False, "mlp_bias": False, "parallel_drafting": False}


@dataclass(frozen=True)
class HeadConfig:
    """Properties of a head, by the names of the speculators layout.

    Attributes:
        layout: the layout of config.json.
        hidden_size: size of the head's own hidden states and embeddings.
        target_hidden_size: size of the target's hidden states.
        intermediate_size: width of the feed-forward network.
        num_heads: attention heads.
        num_kv_heads: KV heads.
        head_dim: size of an attention head.
        num_layers: layers, usually 1.
        vocab_size: size of the target's vocabulary.
        draft_vocab_size: size of the vocabulary that the head predicts.
        aux_layers: ids of the target's auxiliary layers, ascending; None is vLLM's default.
        norm_before_residual: whether the residual stream starts after the norm of the hidden states.
        norm_before_fc: whether the target's hidden states are normed together before `fc`.
        fc_norm: whether the target's hidden states are normed separately before `fc`.
        norm_output: whether the hidden states that the head goes on from are those after its last norm.
        layer: keys of the transformers config of the head's layers.
        base_model: name of the target in config.json; None is not known.
    """

    layout: Literal["original", "speculators"]
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    vocab_size: int
    draft_vocab_size: int
    aux_layers: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    layer: Mapping[str, Any] = field(default_factory=dict)
    base_model: str | None = None

    @property
    def num_aux_layers(self) -> int:
        """The number of the target's layers whose hidden states the head takes."""
        return NUM_AUX_LAYERS if self.aux_layers is None else len(self.aux_layers)

    def aux_layers_of(self, num_target_layers: int) -> tuple[int, ...]:
        """Returns the ids of the auxiliary layers of a target with `num_target_layers` layers."""
        return default_aux_layers(num_target_layers) if self.aux_layers is None else self.aux_layers

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the tensors that a head must have, by their name in the speculators layout."""
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        aux = self.target_hidden_size * self.num_aux_layers
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, aux),
            "norm.weight": (hidden,),
            "lm_head.weight": (self.draft_vocab_size, hidden),
            "layers.0.hidden_norm.weight": (hidden,),
        }
        for i in range(self.num_layers):
            inputs = hidden if i else 2 * hidden
            of_layer = {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (queries, inputs),
                "self_attn.k_proj": (keys, inputs),
                "self_attn.v_proj": (keys, inputs),
                "self_attn.o_proj": (hidden, queries),
                "post_attention_layernorm": (hidden,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }
            shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in of_layer.items()}
        if self.norm_before_fc:
            shapes["input_norm.weight"] = (aux,)
        if self.fc_norm:
            shapes |= {f"fc_norm.{i}.weight": (self.target_hidden_size,) for i in range(self.num_aux_layers)}
        return shapes


def default_aux_layers(num_target_layers: int) -> tuple[int, ...]:
    """Returns vLLM's auxiliary layers for heads that name none; fewer than three for targets of few layers."""
    n = num_target_layers
    return tuple(sorted({layer for layer in (2, n // 2, n - 3) if 0 <= layer <= n}))


def read_layout(data: Mapping[str, Any], path: str) -> HeadConfig:
    """Reads the keys of either layout.

    Args:
        data: the object in config.json.
        path: of config.json, for messages.

    Raises:
        UnreadableError: names the file, the key and the allowed values.
    """
    algorithm = data.get("speculators_model_type")
    if algorithm not in (None, "eagle3"):
        raise _mistake(path, "speculators_model_type", algorithm, "eagle3")
    layer, prefix = data, ""
    if algorithm is not None:
        inner, prefix = data.get("transformer_layer_config"), "transformer_layer_config."
        if not isinstance(inner, dict):
            raise _mistake(path, "transformer_layer_config", inner, "a section with the sizes of the head's layer")
        layer = inner
    if layer.get("model_type", "llama") != "llama":
        raise _mistake(path, f"{prefix}model_type", layer["model_type"], "llama, heads with Llama layers")
    for key, allowed in _REFUSED.items():
        if layer.get(key, allowed) != allowed:
            raise _mistake(path, prefix + key, layer[key], f"{show(allowed)}; heads with it are not supported yet")
    sizes = {key: _size(layer, key, path, prefix) for key in _SIZES}
    heads = sizes["num_attention_heads"]
    section = data.get("eagle_config")
    eagle: Mapping[str, Any] = section if isinstance(section, dict) else {}
    if eagle.get("use_aux_hidden_state", True) is not True:
        raise _mistake(path, "eagle_config.use_aux_hidden_state", eagle["use_aux_hidden_state"], "true")
    ids = data.get("eagle_aux_hidden_state_layer_ids") or eagle.get("eagle_aux_hidden_state_layer_ids")
    return HeadConfig(
        layout="speculators" if algorithm else "original",
        hidden_size=sizes["hidden_size"],
        target_hidden_size=_size(data, "target_hidden_size", path, "", sizes["hidden_size"]),
        intermediate_size=sizes["intermediate_size"],
        num_heads=heads,
        num_kv_heads=_size(layer, "num_key_value_heads", path, prefix, heads),
        head_dim=_size(layer, "head_dim", path, prefix, sizes["hidden_size"] // heads),
        num_layers=_size(layer, "num_hidden_layers", path, prefix, 1),
        vocab_size=sizes["vocab_size"],
        draft_vocab_size=_size(data, "draft_vocab_size", path, "", sizes["vocab_size"]),
        aux_layers=None if ids is None else _aux_layers(ids, path),
        # The defaults of vLLM's reader of each layout.
        norm_before_residual=bool(data.get("norm_before_residual", algorithm is not None)),
        norm_before_fc=bool(eagle.get("norm_before_fc", data.get("norm_before_fc", False))),
        fc_norm=bool(data.get("fc_norm", False)),
        norm_output=bool(data.get("norm_output", False)),
        layer=dict(layer),
        base_model=_base_model(data),
    )


def _mistake(path: str, key: str, value: object, allowed: str) -> UnreadableError:
    return UnreadableError(
        f"{path}: {key}: got {show(value)}; allowed: {allowed}; choose another head or train one with "
        "vllm-spec train-eagle3"
    )


def _size(section: Mapping[str, Any], key: str, path: str, prefix: str, default: int | None = None) -> int:
    value = section.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _mistake(path, prefix + key, value, "a whole number from 1")
    return value


def _aux_layers(value: Any, path: str) -> tuple[int, ...]:
    is_list = isinstance(value, Sequence) and all(type(layer) is int and layer >= 0 for layer in value)
    # vLLM passes hidden states in ascending order, each layer's once.
    if not is_list or list(value) != sorted(set(value)):
        allowed = "layer ids from 0 in ascending order, each once"
        raise _mistake(path, "eagle_aux_hidden_state_layer_ids", value, allowed)
    return tuple(value)


def _base_model(data: Mapping[str, Any]) -> str | None:
    match data:
        case {"speculators_config": {"verifier": {"name_or_path": str(name)}}}:
            return name
    return None
