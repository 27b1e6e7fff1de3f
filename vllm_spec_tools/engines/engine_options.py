"""Reads words of the command line: vLLM's own options, numbers, lists."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import typer

from vllm_spec_plugin.schema.errors import UserError, config_error

STOCK_EXAMPLE = '{"method": "ngram", "num_speculative_tokens": 4}'
SET_BY_COMMAND = "leave it out: the command sets it"


def engine_options(arguments: Sequence[str], own: Mapping[str, str], *, enforce_eager: bool = False) -> dict[str, Any]:
    """Keyword arguments of `vllm.LLM` from engine options of `vllm serve`, or `name=value`.

    Args:
        enforce_eager: whether the command was given its own --enforce-eager.

    Raises:
        UserError: vLLM has no such option or refuses its value, or it is not to be set; or no vLLM is supported here.
    """
    if not arguments:
        return {}
    from vllm_spec_plugin.compat.engine_args import parse_engine_options
    from vllm_spec_plugin.register.version import check_vllm

    check_vllm()
    words = [f"--{word}" if not word.startswith("-") and "=" in word else word for word in arguments]
    try:
        options = parse_engine_options(words)
    except ValueError as error:
        raise UserError(f"options after --: {error}; allowed after --: engine options of vllm serve") from None
    refused = {"disable_log_stats": SET_BY_COMMAND, **own}
    for name in options:
        if name in refused:
            raise UserError(f"options after --: got --{name.replace('_', '-')}; {refused[name]}")
    if enforce_eager and options.get("enforce_eager") is False:
        raise UserError("options after --: got --no-enforce-eager and --enforce-eager; allowed: one of them")
    return options


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


def speculative_json(option: str, text: str, example: str, *, needs_tokens: bool = False) -> dict[str, Any]:
    """Reads one of vLLM's speculative configs.

    Raises:
        UserError: it is not JSON, names no method, or no number of tokens where it must.
        ConfigError: vLLM does not know its method or a key, or a package is missing.
    """
    from vllm_spec_tools.vllm_json import missing_package, mistakes_in

    try:
        given = json.loads(text)
    except ValueError as error:
        raise UserError(f"{option}: is not JSON: {error}; allowed: as in {example}") from None
    if not isinstance(given, dict) or not isinstance(given.get("method"), str):
        raise UserError(f"{option}: has no method; allowed: as in {example}")
    if mistakes := mistakes_in(given) or missing_package(given["method"]):
        raise config_error(option, mistakes)
    tokens = given.get("num_speculative_tokens")
    if needs_tokens and not (type(tokens) is int and tokens > 0):
        raise UserError(f"{option}: has no num_speculative_tokens; allowed: as in {example}")
    return given


_SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def parse_count(text: str | int) -> int:
    """Parses a number with an optional suffix k, M or B; a default is a number already.

    Raises:
        typer.BadParameter: it is no such number.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)([kmb]?)", str(text), re.ASCII | re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"got {text!r}; allowed: a number, optionally with the suffix k, M or B, such as 200M")
    return int(Decimal(match[1]) * _SCALES[match[2].upper()])
