"""Whether Medusa heads can draft for a target: what is found out before an engine starts."""

from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.medusa.checkpoint import (
    MedusaCheckpointError,
    check_measured,
    check_sizes,
    read_heads_config,
)
from vllm_spec_plugin.proposers.model_source import ModelSource, refusal
from vllm_spec_plugin.schema.errors import show_source, show_text

__all__ = ["check_heads"]


def check_heads(
    target: ModelSource | None, model: str, num_heads_wanted: int | None, where: str, *, needs_accuracy: bool = False
) -> list[str]:
    """Checks that heads are there, are whole, and fit the target.

    What cannot be read of the target is not compared: vLLM serves models that transformers does not know. The
    name of the model that the heads were trained for is not compared either: one model has many paths and names.

    Args:
        target: the model served; None is not known, and nothing is compared.
        model: the value of `proposer.model`: a folder or a name on the Hugging Face hub.
        num_heads_wanted: tokens that a path drafts, one per head; None is not known.
        where: the configuration file, for messages.
        needs_accuracy: whether the shape of the drafts is chosen by the heads' measured accuracies.

    Returns:
        Warnings: what could not be checked.

    Raises:
        ConfigError: the heads cannot be read or do not fit; one message for the person who chose them.
    """
    notes: list[str] = []
    shown = target.shown if target is not None else ""
    hidden_size = vocab_size = None
    try:
        config = read_heads_config(model)
        if needs_accuracy:
            check_measured(config)
        try:
            hidden_size, vocab_size = _sizes(target) if target is not None else (None, None)
        except ValueError as error:
            notes.append(f"not compared with the target {shown}, whose config cannot be read: {error}")
        check_sizes(config, model, hidden_size, vocab_size, num_heads_wanted, f"the target {shown}")
    except MedusaCheckpointError as error:
        raise refusal(where, str(error)) from None
    return [f"{show_source(where)}: proposer.model: {note}" for note in notes]


def _sizes(target: ModelSource) -> tuple[int | None, int | None]:
    """The target's hidden size and vocabulary, as far as its config gives them; ValueError if it cannot be read."""
    from transformers import AutoConfig

    origin: dict[str, Any] = {"local_files_only": Path(target.model).is_dir()}
    if target.revision is not None:
        origin["revision"] = target.revision
    try:
        config = AutoConfig.from_pretrained(target.model, **origin, trust_remote_code=target.trust_remote_code)
        config = config.get_text_config()
    except Exception as error:  # whatever a config from anywhere makes of the library that reads it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(show_text(reason, 300).rstrip(".:")) from None
    hidden_size, vocab_size = getattr(config, "hidden_size", None), getattr(config, "vocab_size", None)
    return hidden_size, vocab_size
