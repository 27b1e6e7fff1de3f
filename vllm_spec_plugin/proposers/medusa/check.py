"""Checks before start-up whether Medusa heads can draft for a target."""

from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.medusa.checkpoint import (
    check_measured,
    check_sizes,
    read_heads_config,
)
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource, refusal
from vllm_spec_plugin.schema.errors import show_source, show_text

__all__ = ["check_heads"]


def check_heads(
    target: ModelSource | None, model: str, num_heads_wanted: int | None, where: str, *, needs_accuracy: bool = False
) -> list[str]:
    """Checks that the heads exist, are complete, and fit the target.

    Properties of the target that cannot be read are not compared: vLLM serves models that transformers does not
    know. The name of the heads' base model is not compared: one model has many paths and names.

    Args:
        target: the served model; None compares nothing.
        model: the value of `proposer.model`: a folder or a name on the Hugging Face hub.
        num_heads_wanted: draft tokens per path, one per head; None accepts any number.
        where: name of the configuration file, for messages.
        needs_accuracy: whether the heads' measured accuracies choose the shape of drafts.

    Returns:
        Warnings about properties that could not be checked.

    Raises:
        ConfigError: the heads cannot be read or do not fit.
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
            notes.append(f"not compared with the target {shown}: its config cannot be read: {error}")
        check_sizes(config, model, hidden_size, vocab_size, num_heads_wanted, f"the target {shown}")
    except UnreadableError as error:
        raise refusal(where, str(error)) from None
    return [f"{show_source(where)}: proposer.model: {note}" for note in notes]


def _sizes(target: ModelSource) -> tuple[int | None, int | None]:
    """Returns the target's hidden and vocabulary sizes, None where missing; ValueError if it cannot be read."""
    from transformers import AutoConfig

    origin: dict[str, Any] = {"local_files_only": Path(target.model).is_dir()}
    if target.revision is not None:
        origin["revision"] = target.revision
    try:
        config = AutoConfig.from_pretrained(target.model, **origin, trust_remote_code=target.trust_remote_code)
        config = config.get_text_config()
    except Exception as error:  # an unknown config may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(show_text(reason, 300).rstrip(".:")) from None
    hidden_size, vocab_size = getattr(config, "hidden_size", None), getattr(config, "vocab_size", None)
    return hidden_size, vocab_size
