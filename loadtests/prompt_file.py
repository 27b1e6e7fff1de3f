"""Prompts of the scenarios, and their requests."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtests.stream.client import CHAT, COMPLETIONS
from vllm_spec_tools.prompts import GivenPrompt, read_prompts

FOLDER = Path(__file__).parent / "prompts"
_KEYS = {"prompt", "messages", "max_tokens", "temperature"}


@functools.cache
def prompts_of(scenario: str, given: str = "") -> tuple[GivenPrompt, ...]:
    """Prompts of a scenario, read once per process.

    Args:
        given: file that replaces the scenario's own; empty for none.

    Raises:
        UserError: the file cannot be read; see `read_prompts`.
    """
    return read_prompts([Path(given) if given else FOLDER / f"{scenario}.jsonl"])


def request_of(prompt: GivenPrompt, model: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """URL path and body of a prompt's request."""
    own = prompt.model_dump(include=_KEYS, exclude_none=True)
    if prompt.prediction is not None:
        own["prediction"] = {"type": "content", "content": prompt.prediction}
    return COMPLETIONS if prompt.messages is None else CHAT, {"model": model} | dict(options) | own
