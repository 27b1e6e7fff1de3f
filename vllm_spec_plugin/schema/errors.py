"""Configuration errors, and the words of their messages."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_SHOWN = 60
MAX_MISTAKES = 20


class UserError(Exception):
    """A mistake of the user; str() is the whole message. Commands print it and exit with status 2."""


class ConfigError(UserError, ValueError):
    """A configuration cannot be used; str() is the whole message."""


@dataclass(frozen=True)
class Mistake:
    """One mistake in a file.

    Attributes:
        key: dotted path of the key; empty is the whole file.
        text: the value given, and the allowed values.
    """

    key: str
    text: str


def config_error(source: str, mistakes: Sequence[Mistake]) -> ConfigError:
    """Combines all mistakes of one file in one error."""
    lines = [f"{mistake.key}: {mistake.text}" if mistake.key else mistake.text for mistake in mistakes]
    if len(lines) == 1:
        return ConfigError(f"{source}: {lines[0]}")
    shown = lines[:MAX_MISTAKES]
    if len(lines) > len(shown):
        shown.append(f"and {len(lines) - len(shown)} more")
    return ConfigError("\n  ".join([f"{source}: {len(lines)} mistakes:", *shown]))


def show_text(text: str, limit: int = MAX_SHOWN) -> str:
    """Makes text fit one line of a terminal: escapes control characters, cuts at `limit` characters."""
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_file(path: Path) -> str:
    """Formats a path for messages."""
    return f"'{show_text(str(path), 200)}'"


def show_reason(error: BaseException) -> str:
    """Returns the first line of an exception's message; of a validation error, the first field and its message."""
    details = getattr(error, "errors", None)  # pydantic's first line is a count
    if callable(details) and details():
        first = details()[0]
        text = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")]))
    else:
        text = str(error).removeprefix("Value error, ")
    text = text.strip() or type(error).__name__
    return show_text(text.splitlines()[0], 300).rstrip(".:")


def show_source(path: str) -> str:
    """Makes a file's name printable, without cutting it."""
    return path if path.isprintable() and path else repr(path)


def show(value: object) -> str:
    """Describes a YAML value, briefly."""
    if value is None or isinstance(value, bool):
        return {None: "nothing (null)", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the text '{show_text(value)}'"
    if isinstance(value, int):
        return str(value) if value.bit_length() < 200 else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return "a section"
    return "a list" if isinstance(value, list) else f"a value of type {type(value).__name__}"


def join_key(path: str, key: object) -> str:
    """Returns the dotted path of a key in the section at `path`."""
    name = key if isinstance(key, str) else show(key)
    name = show_text(name) if name and "." not in name else f"'{show_text(name)}'"
    return f"{path}.{name}" if path else name


def closest(word: object, known: Sequence[str]) -> str | None:
    """Returns the known word that `word` probably misspells; None if there is none."""
    if not isinstance(word, str) or len(word) > 100:  # comparing is quadratic, and no known word is that long
        return None
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return close[0] if close else None


def did_you_mean(word: object, known: Sequence[str]) -> str:
    """Ends a message about an unknown word with a suggestion, if there is one."""
    close = closest(word, known)
    return f"; did you mean {close}?" if close else ""


def unknown_word(value: object, known: Sequence[str], or_null: str = "") -> str:
    """Builds the message about `value`, which is not one of `known`."""
    return f"got {show(value)}; allowed: {', '.join(known)}{or_null}{did_you_mean(value, known)}"
