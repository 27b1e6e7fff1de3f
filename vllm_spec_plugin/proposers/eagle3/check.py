"""Checks before start-up whether an EAGLE-3 head can draft for a target."""

from pathlib import Path

from vllm_spec_plugin.proposers.eagle3.checkpoint import Head, read_head
from vllm_spec_plugin.proposers.eagle3.layout import HeadConfig
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import (
    ConfigFacts,
    check_name,
    context_note,
    context_of,
    read_facts,
    refusal,
)
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import show_source, show_text

_ADVICE = "choose a head for this target or train one with vllm-spec train-eagle3"


def check_head(target: Target | None, model: str, where: str) -> list[str]:
    """Checks that the head is complete and fits the target, without loading weights.

    Properties of the target that cannot be read are not compared: vLLM serves models that transformers does not know.
    The name of the head's target is not compared: one model has many paths and names.

    Args:
        target: the served model; None compares nothing, and reads a folder only.
        model: the value of `proposer.model`: a folder or a name on the Hugging Face hub.
        where: name of the configuration file, for messages.

    Returns:
        Warnings about properties that could not be checked, and about a context shorter than the server's.

    Raises:
        ConfigError: the head cannot be read or does not fit.
    """
    if target is None and not Path(model).is_dir():
        # As with draft models, nothing is downloaded to check a file alone.
        check_name(model, where)
        return []
    try:
        head = read_head(model)
    except UnreadableError as error:
        raise refusal(where, str(error)) from None
    if target is None:
        return []
    if not _can_split(head.config, size := target.tensor_parallel_size):
        sizes = ", ".join(str(smaller) for smaller in range(1, size) if _can_split(head.config, smaller))
        raise refusal(
            where,
            f"the {head.config.num_heads} attention heads, {head.config.num_kv_heads} KV heads and feed-forward size "
            f"{head.config.intermediate_size:,} of '{show_text(model, 200)}' cannot be split over tensor_parallel_size "
            f"{size}; allowed: {sizes}, or another head",
        )
    try:
        facts = read_facts(target.source)
    except UnreadableError as error:
        reason = f"not compared with the target {target.source.shown}: its config cannot be read: {error}"
        return [f"{show_source(where)}: proposer.model: {reason}"]
    if reason := obstacle(head, facts, f"the target {target.source.shown}"):
        raise refusal(where, f"'{show_text(model, 200)}' {reason}; {_ADVICE}")
    from transformers import LlamaConfig

    longest, context = target.max_model_len or facts.context, context_of(LlamaConfig(**head.config.layer))
    if longest is None or context is None or context >= longest:
        return []
    note = context_note(f"'{show_text(model, 200)}'", context, longest)
    return [f"{show_source(where)}: proposer.model: {note}"]


def _can_split(config: HeadConfig, size: int) -> bool:
    # vLLM replicates KV heads if there are fewer than devices.
    kv_heads = config.num_kv_heads
    kv_split = kv_heads % size == 0 or size % kv_heads == 0
    return kv_split and config.num_heads % size == 0 and config.intermediate_size % size == 0


def obstacle(head: Head, target: ConfigFacts, shown: str) -> str:
    """Returns why a head cannot draft for a target, with what is allowed; empty if it can.

    Args:
        head: the head.
        target: properties of the target; those that are None are not compared.
        shown: the target's name for messages.
    """
    config = head.config
    for what, found, wanted in (
        ("a vocabulary of", config.vocab_size, target.vocab_size),
        ("hidden states of size", config.target_hidden_size, target.hidden_size),
    ):
        if wanted is not None and found != wanted:
            return f"is for a target with {what} {found:,}, {shown} has {wanted:,}; allowed: a head for {wanted:,}"
    if not head.has_embedding and target.hidden_size not in (None, config.hidden_size):
        return (
            f"has no embedding of its own and a hidden size of {config.hidden_size:,}, {shown} has embeddings of size "
            f"{target.hidden_size:,}; allowed: equal sizes, or a head with 'embed_tokens.weight'"
        )
    if target.num_layers is None:
        return ""
    layers = config.aux_layers_of(target.num_layers)
    if len(layers) != config.num_aux_layers:
        return (
            f"does not name its auxiliary layers, and the default ones of {shown} with {target.num_layers} layers are "
            f"{list(layers)}; allowed: {config.num_aux_layers} layers in eagle_aux_hidden_state_layer_ids"
        )
    if layers[-1] > target.num_layers:
        return (
            f"takes hidden states after layer {layers[-1]}, {shown} has {target.num_layers} layers; allowed: layer ids "
            f"from 0 to {target.num_layers}"
        )
    return ""
