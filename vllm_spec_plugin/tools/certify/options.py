"""Reads vLLM's own options from the command line, and what depends on the model."""

from collections.abc import Sequence
from typing import Any

import yaml

from vllm_spec_plugin.schema.errors import UserError

# What a certification sets itself.
_OWN = {"model": "--model", "speculative_config": "--config", "seed": None, "disable_log_stats": None}


def engine_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM` from `--name value`, `--name=value`, `--flag`, `--no-flag` or `name=value`.

    Raises:
        UserError: one can't be read, or is not to be set.
    """
    options: dict[str, Any] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, sign, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") and not sign:
            allowed = "allowed after --: vLLM's options, as --name value or name=value"
            raise UserError(f"engine options: got {word!r}; {allowed}")
        name = name.replace("-", "_")
        if name in _OWN:
            instead = f"use {_OWN[name]}" if _OWN[name] else "leave it out: it is set by certify"
            raise UserError(f"engine options: got {word!r}; {instead}")
        if sign:
            options[name] = _value(word, value)
        elif words and not words[0].startswith("--"):
            options[name] = _value(word, words.pop(0))
        elif name.startswith("no_"):
            options[name.removeprefix("no_")] = False
        else:
            options[name] = True
    return options


def _value(word: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"engine options: {word}: cannot read {text!r}; allowed: a number, text, or JSON") from None


def context_of(model: str) -> int | None:
    """The longest text that a model's config allows; None if it says nothing, or can't be read, as vLLM will say."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config()
    except Exception:  # whatever a config from anywhere makes of the library that reads it
        return None
    context = getattr(config, "max_position_embeddings", None)
    return context if isinstance(context, int) else None
