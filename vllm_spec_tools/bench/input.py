"""Reads the input of benchmarks."""

import json
import re
from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.schema.errors import UserError


def whole_numbers(option: str, text: str, most: int, least: int = 1) -> tuple[int, ...]:
    """The numbers of a list such as 1,2,4, once each.

    Raises:
        UserError: it is anything else, or one is out of range.
    """
    items = [item.strip() for item in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", item, re.ASCII) and least <= int(item) <= most for item in items):
        raise UserError(f"{option}: got {text!r}; allowed: whole numbers from {least} to {most}, such as 1,2,4")
    return tuple(dict.fromkeys(map(int, items)))


def words(option: str, given: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """The words, once each.

    Raises:
        UserError: one is not allowed.
    """
    for word in given:
        if word not in allowed:
            raise UserError(f"{option}: got {word!r}; allowed: {', '.join(allowed)}")
    return tuple(dict.fromkeys(given))


def speculative_json(option: str, text: str, example: str) -> dict[str, Any]:
    """Reads one of vLLM's speculative configs.

    Args:
        text: in JSON.

    Raises:
        UserError: it is no JSON, or names no method.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise UserError(f"{option}: is no JSON: {error}; allowed: as in {example}") from None
    if not isinstance(given, dict) or not isinstance(given.get("method"), str):
        raise UserError(f"{option}: has no method; allowed: as in {example}")
    return given
