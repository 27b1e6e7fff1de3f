"""What `--arm` may say, and the arms that it stands for, named for people."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vllm_spec_plugin.config import MAX_TOKENS
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.input import whole_numbers, words

NONE, OPTIMAL = "no speculation", "optimal"
STOCK_METHODS = tuple(sorted(method_of(kind) for kind in BUNDLED if kind.vllm_settings("") is not None))
_STOCK_WORDS = " or ".join(f"stock:{method}" for method in STOCK_METHODS)
ALLOWED = f"none, optimal, without:MECHANISM, fixed:K,K,..., {_STOCK_WORDS} (also with :K), or a plugin.yaml"

_VLLM = "vLLM's "
_STOCK_TOKENS, _MOST_STOCK_TOKENS = 4, 32


@dataclass(frozen=True)
class Choice:
    """An arm as given on the command line.

    Attributes:
        name: of the arm in reports.
        kind: "none"; "optimal" and "fixed": the plugin; "stock": vLLM's own speculation; "file": a plugin.yaml.
        tokens: K of "fixed", where 0 is the plugin with drafts off, and of "stock".
        detail: mechanism of "optimal" that is switched off, method of "stock", path of "file".
    """

    name: str
    kind: Literal["none", "optimal", "fixed", "stock", "file"]
    tokens: int = 0
    detail: str = ""


def choose_arms(given: Sequence[str], min_fixed: int = 0) -> tuple[Choice, ...]:
    """The arms that words stand for, once each, in order; `none` comes first, whether it is named or not.

    Args:
        given: the words.
        min_fixed: minimum K of `fixed`.

    Raises:
        UserError: a word says nothing.
    """
    chosen = (choice for word in given for choice in _choices(word, min_fixed))
    return tuple(dict.fromkeys((Choice(NONE, "none"), *chosen)))


def stock_of(names: Iterable[str]) -> str | None:
    """The first arm of vLLM's own speculation; None if there is none."""
    return next((name for name in names if is_stock(name)), None)


def is_stock(name: str) -> bool:
    """Whether an arm of that name is vLLM's own speculation."""
    return name.startswith(_VLLM)


def _choices(word: str, min_fixed: int) -> Iterator[Choice]:
    kind, colon, rest = word.partition(":")
    if word == "none":
        yield Choice(NONE, "none")
    elif word == OPTIMAL:
        yield Choice(OPTIMAL, "optimal")
    elif kind == "without" and colon:
        # Only here: the mechanisms' modules take a while to import.
        from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS

        for mechanism in words(f"--arm {word}", [rest], tuple(MECHANISMS)):
            yield Choice(f"without {mechanism}", "optimal", detail=mechanism)
    elif kind == "fixed" and colon:
        for tokens in whole_numbers(f"--arm {word}", rest, MAX_TOKENS, min_fixed):
            yield Choice(f"fixed K = {tokens}", "fixed", tokens)
    elif kind == "stock" and colon:
        method, colon, lengths = rest.partition(":")
        if method not in STOCK_METHODS:
            raise UserError(f"--arm {word}: got {method!r}; allowed: {', '.join(STOCK_METHODS)}")
        for tokens in whole_numbers(f"--arm {word}", lengths, _MOST_STOCK_TOKENS) if colon else (_STOCK_TOKENS,):
            yield Choice(f"{_VLLM}{method}, K = {tokens}", "stock", tokens, method)
    elif Path(word).is_file():
        yield Choice(word, "file", detail=word)
    else:
        raise UserError(f"--arm: got {word!r}, which is no file either; allowed: {ALLOWED}")
