"""Turns what is wrong with a configuration into lines for the person at the terminal.

What is allowed is read from the models' JSON schema, so it cannot differ from what is checked.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

MAX_SHOWN = 60
MAX_MISTAKES = 20

Schema = Mapping[str, Any]


class ConfigError(ValueError):
    """A configuration that cannot be used; str() is the whole message for the person who wrote it."""


@dataclass(frozen=True)
class Mistake:
    """One thing to mend.

    Attributes:
        key: dotted path; empty is the file as a whole.
        text: the value given and what is allowed.
    """

    key: str
    text: str


def config_error(source: str, mistakes: Sequence[Mistake]) -> ConfigError:
    """All mistakes of one file as one error."""
    lines = [f"{mistake.key}: {mistake.text}" if mistake.key else mistake.text for mistake in mistakes]
    if len(lines) == 1:
        return ConfigError(f"{source}: {lines[0]}")
    shown = lines[:MAX_MISTAKES]
    if len(lines) > len(shown):
        shown.append(f"and {len(lines) - len(shown)} more")
    return ConfigError("\n  ".join([f"{source}: {len(lines)} mistakes:", *shown]))


def show_text(text: str, limit: int = MAX_SHOWN) -> str:
    """Text for one line of a terminal: no control characters, not too long."""
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_source(path: str) -> str:
    """A file's name for messages; any name, but whole."""
    return path if path.isprintable() and path else repr(path)


def show(value: object) -> str:
    """A value in YAML's words, short."""
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
    """The dotted path of a key in the section at `path`."""
    name = key if isinstance(key, str) else show(key)
    name = show_text(name) if name and "." not in name else f"'{show_text(name)}'"
    return f"{path}.{name}" if path else name


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word."""
    known = list(known)
    if len(word) > 100:  # comparing is quadratic, and no known word is near
        return ""
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_word(value: object, known: Sequence[str], kind: str) -> str:
    """What to say of `value`, given where one of `known` goes."""
    hint = nearest(value, known) if isinstance(value, str) else ""
    return f"got {show(value)}{kind}; allowed: {', '.join(known)}{hint}"


def mistakes_in(data: Mapping[str, Any], model: type[BaseModel]) -> list[Mistake]:
    """One mistake per thing that is wrong with `data`."""
    root = model.model_json_schema()
    found: list[Mistake] = []
    guesses: dict[str, Any] = {}
    for entry in _errors(data, model):
        found += _mistakes(entry, root)
        if entry["type"].startswith("union_tag"):
            section = str(entry["loc"][0])
            guesses[section] = _guess(data[section], root["properties"][section]["discriminator"])
    # Without a known method nothing else in its section was checked: check it as the likeliest one's.
    for entry in _errors({**data, **guesses}, model) if guesses else []:
        found += [mistake for mistake in _mistakes(entry, root) if mistake not in found]
    return found


def _errors(data: Mapping[str, Any], model: type[BaseModel]) -> list[dict[str, Any]]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        entries = [dict(entry) for entry in error.errors(include_url=False)]
        return [entry for entry in entries if entry["type"] != "default_factory_not_called"]  # follows from another
    return []


def _guess(section: Mapping[str, Any], discriminator: Schema) -> dict[str, Any]:
    key, known = discriminator["propertyName"], list(discriminator["mapping"])
    close = difflib.get_close_matches(str(section.get(key))[:100], known, n=1, cutoff=0)
    return {**section, key: (close or known)[0]}


def _mistakes(entry: dict[str, Any], root: Schema) -> list[Mistake]:
    path, schema, container = _walk(entry["loc"], root)
    kind, value = entry["type"], entry["input"]
    if kind == "conflict":
        return [Mistake(join_key(path, key), text) for key, text in entry["ctx"]["problems"]]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = schema["discriminator"]["propertyName"]
        known = list(schema["discriminator"]["mapping"])
        given = tag in value
        text = unknown_word(value[tag], known, "") if given else f"missing; allowed: {', '.join(known)}"
        return [Mistake(join_key(path, tag), text)]
    if kind == "missing":
        return [Mistake(path, f"missing; allowed: {allowed(schema, root)}")]
    if kind == "extra_forbidden":
        return [Mistake(path, _unknown_key(str(entry["loc"][-1]), value, container, root))]
    if kind == "invalid_key":
        return [Mistake(path, f"got {show(entry['loc'][-1])} as a key; allowed: {', '.join(container['properties'])}")]
    if "enum" in schema or "const" in schema:
        return [Mistake(path, unknown_word(value, _words(schema), ""))]
    return [Mistake(path, f"got {show(value)}; allowed: {allowed(schema, root)}")]


def _unknown_key(key: str, value: object, container: Schema, root: Schema) -> str:
    known = list(container["properties"])
    hint = nearest(key, known)
    elsewhere = [f"{section}.{key}" for section, keys in _sections(root).items() if key in keys]
    if elsewhere and key not in known:
        hint = f"; did you mean {elsewhere[0]}?"
    return f"unknown key (got {show(value)}); allowed: {', '.join(known)}{hint}"


def _sections(root: Schema) -> dict[str, list[str]]:
    return {name: _keys(schema, root) for name, schema in root["properties"].items()}


def _models(schema: Schema, root: Schema) -> list[Schema]:
    """The models that a section's schema may stand for."""
    references = [choice["$ref"] for choice in schema.get("oneOf", [schema]) if "$ref" in choice]
    return [root["$defs"][reference.rsplit("/", 1)[1]] for reference in references]


def _keys(schema: Schema, root: Schema) -> list[str]:
    return list(dict.fromkeys(key for model in _models(schema, root) for key in model["properties"]))


def _walk(location: Sequence[str | int], root: Schema) -> tuple[str, Schema, Schema]:
    """Follows pydantic's location: the dotted path, the schema there, and the schema of the section it is in."""
    path, schema, container = "", root, root
    for step in location:
        if "discriminator" in schema:  # here pydantic names the choice made, which is no key of the file
            reference = schema["discriminator"]["mapping"][step]
            schema = root["$defs"][reference.rsplit("/", 1)[1]]
            continue
        if "$ref" in schema:
            schema = _models(schema, root)[0]
        container = schema
        path = join_key(path, step)
        schema = container.get("properties", {}).get(step, {})
    return path, schema, container


def _words(schema: Schema) -> list[str]:
    return [str(word) for word in schema.get("enum", [schema.get("const")])]


def allowed(schema: Schema, root: Schema) -> str:
    """What may stand where `schema` is checked, in words."""
    if "anyOf" in schema:
        schema = next(choice for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return ", ".join(_words(schema))
    kind = {"integer": "a whole number", "number": "a number"}.get(schema.get("type", ""))
    if kind is None:
        keys = _keys(schema, root) or list(schema.get("properties", {}))
        return f"a section with keys of its own: {', '.join(keys)}"
    low = f"above {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else f"from {schema['minimum']}"
    return f"{kind} {low} {'up to' if 'above' in low else 'to'} {schema['maximum']}"
