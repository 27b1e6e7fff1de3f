"""What `--arm` may say, and the arms that it stands for, named for people."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vllm_spec_plugin.config import MAX_TOKENS
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of
from vllm_spec_plugin.tools.bench.input import InputError, whole_numbers, words

NONE, OPTIMAL = "no speculation", "optimal"
STOCK_METHODS = tuple(sorted(method_of(kind) for kind in BUNDLED if kind.vllm_settings("") is not None))
_STOCK_WORDS = " or ".join(f"stock:{method}" for method in STOCK_METHODS)
ALLOWED = f"none, optimal, without:MECHANISM, fixed:K,K,..., {_STOCK_WORDS} (also with :K), or a plugin.yaml"

_NONE, _FIXED, _STOCK, _WITHOUT = "none", "fixed", "stock", "without"
_VLLM = "vLLM's "
_STOCK_TOKENS, _MOST_STOCK_TOKENS = 4, 32


@dataclass(frozen=True)
class NoDrafts:
    """No speculation."""

    name: ClassVar[str] = NONE


@dataclass(frozen=True)
class Optimal:
    """The plugin with policy `optimal`."""

    name: ClassVar[str] = OPTIMAL


@dataclass(frozen=True)
class Without:
    """The plugin with policy `optimal`, one mechanism of it switched off.

    Attributes:
        mechanism: one of `replay.ablation.MECHANISMS`.
    """

    mechanism: str

    @property
    def name(self) -> str:
        return f"{_WITHOUT} {self.mechanism}"


@dataclass(frozen=True)
class Fixed:
    """The plugin with the same draft length in every step.

    Attributes:
        tokens: K; 0 is the plugin with drafts switched off.
    """

    tokens: int

    @property
    def name(self) -> str:
        return f"fixed K = {self.tokens}"


@dataclass(frozen=True)
class Stock:
    """vLLM's own speculation.

    Attributes:
        method: one of `STOCK_METHODS`.
        tokens: K.
    """

    method: str
    tokens: int = _STOCK_TOKENS

    @property
    def name(self) -> str:
        return f"{_VLLM}{self.method}, K = {self.tokens}"


@dataclass(frozen=True)
class OwnFile:
    """A plugin.yaml as it is."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)


# `name` is what the arm is called in the report.
Choice = NoDrafts | Optimal | Without | Fixed | Stock | OwnFile


def choose_arms(given: Sequence[str], least_fixed: int = 0) -> tuple[Choice, ...]:
    """The arms that words stand for, once each, in order; `none` comes first, whether it is named or not.

    Args:
        given: the words.
        least_fixed: the least K of `fixed`.

    Raises:
        InputError: a word says nothing.
    """
    chosen = (choice for word in given for choice in _choices(word, least_fixed))
    return tuple(dict.fromkeys((NoDrafts(), *chosen)))


def stock_of(names: Iterable[str]) -> str | None:
    """The first arm of vLLM's own speculation; None if there is none."""
    return next((name for name in names if is_stock(name)), None)


def is_stock(name: str) -> bool:
    """Whether an arm of that name is vLLM's own speculation."""
    return name.startswith(_VLLM)


def _choices(word: str, least_fixed: int) -> Iterator[Choice]:
    kind, colon, rest = word.partition(":")
    if word == _NONE:
        yield NoDrafts()
    elif word == OPTIMAL:
        yield Optimal()
    elif kind == _WITHOUT and colon:
        # Only here: the mechanisms' modules take a while to import.
        from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS

        yield from (Without(mechanism) for mechanism in words(f"--arm {word}", [rest], tuple(MECHANISMS)))
    elif kind == _FIXED and colon:
        yield from map(Fixed, whole_numbers(f"--arm {word}", rest, MAX_TOKENS, least_fixed))
    elif kind == _STOCK and colon:
        method, colon, tokens = rest.partition(":")
        if method not in STOCK_METHODS:
            raise InputError(f"--arm {word}: got {method!r}; allowed: {', '.join(STOCK_METHODS)}")
        lengths = whole_numbers(f"--arm {word}", tokens, _MOST_STOCK_TOKENS) if colon else (_STOCK_TOKENS,)
        yield from (Stock(method, length) for length in lengths)
    elif Path(word).is_file():
        yield OwnFile(Path(word))
    else:
        raise InputError(f"--arm: got {word!r}, which is no file either; allowed: {ALLOWED}")
