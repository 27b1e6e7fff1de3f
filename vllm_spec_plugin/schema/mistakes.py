"""Turns pydantic's validation errors of a configuration into mistakes.

Allowed values are read from the models' JSON schema, so messages cannot differ from the checks.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.schema.errors import Mistake, closest, did_you_mean, join_key, show, show_text, unknown_word

if TYPE_CHECKING:
    from pydantic import BaseModel

# JSON schema's types in messages.
_NUMBERS = {"integer": "a whole number", "number": "a number"}
_KINDS = {"string": "a text", "boolean": "true or false", "array": "a list"}

Schema = Mapping[str, Any]


def mistakes_in(data: Mapping[str, Any], model: "type[BaseModel]") -> list[Mistake]:
    """Returns every mistake in `data`."""
    root = _schema(model)
    found: list[Mistake] = []
    guesses: dict[str, _Guess] = {}
    for entry in _errors(data, model):
        found += _mistakes(entry, root)
        if entry["type"].startswith("union_tag") and len(entry["loc"]) == 1:
            section = str(entry["loc"][0])
            guess = _guess(data[section], root["properties"][section]["discriminator"], root)
            guesses |= {section: guess} if guess else {}
    if not guesses:
        return found
    # With an unknown method nothing else in its section was checked: check it as the most likely method's.
    for entry in _errors({**data, **{section: guess.section for section, guess in guesses.items()}}, model):
        unsure = entry["loc"][0] in guesses and not guesses[str(entry["loc"][0])].is_slip
        # Required and unknown keys depend on the method.
        if not (unsure and entry["type"] in ("missing", "extra_forbidden")):
            found += [mistake for mistake in _mistakes(entry, root) if mistake not in found]
    return found


@functools.cache
def _schema(model: "type[BaseModel]") -> dict[str, Any]:
    return model.model_json_schema()


def _errors(data: Mapping[str, Any], model: "type[BaseModel]") -> list[dict[str, Any]]:
    from pydantic import ValidationError

    try:
        model.model_validate(data)
    except ValidationError as error:
        entries = [dict(entry) for entry in error.errors(include_url=False)]
        return [entry for entry in entries if not _follows(entry, entries)]
    return []


def _follows(entry: dict[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Whether a mistake follows from another one: pydantic counts only the valid items of a list."""
    location = entry["loc"]
    if entry["type"] == "too_short":
        return any(other["loc"][: len(location)] == location for other in entries if other is not entry)
    return bool(entry["type"] == "default_factory_not_called")


@dataclass(frozen=True)
class _Guess:
    """A section as it was probably meant.

    Attributes:
        section: its keys, with a known method.
        is_slip: whether the given method is that one misspelt; otherwise the other keys decided.
    """

    section: dict[str, Any]
    is_slip: bool


def _guess(section: Mapping[str, Any], discriminator: Schema, root: Schema) -> _Guess | None:
    key = discriminator["propertyName"]
    models = _choices(discriminator, root)
    close = closest(section.get(key), list(models))
    if close is not None:
        return _Guess({**section, key: close}, is_slip=True)
    known = {tag: len(section.keys() & model["properties"].keys()) for tag, model in models.items()}
    likeliest = [tag for tag, count in known.items() if count == max(known.values())]
    return _Guess({**section, key: likeliest[0]}, is_slip=False) if len(likeliest) == 1 else None


def _mistakes(entry: dict[str, Any], root: Schema) -> list[Mistake]:
    path, schema, container = _locate(entry["loc"], root)
    kind, value = entry["type"], entry["input"]
    if kind == "conflict":
        problems = entry["ctx"]["problems"]
        # A cascade's members are not at `proposer`.
        texts = [text.replace("proposer.", f"{path}.") if path.endswith("]") else text for _, text in problems]
        keys = [f"{path}.{key}" if path else key for key, _ in problems]
        return [Mistake(key, text) for key, text in zip(keys, texts, strict=True)]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = schema["discriminator"]["propertyName"]
        known = list(schema["discriminator"]["mapping"])
        if tag in value:
            text = unknown_word(value[tag], known)
            ours = root["properties"].get("proposer", schema)["discriminator"]["mapping"]
            given = value[tag]
            if tag == "method" and isinstance(given, str) and given not in ours and not closest(given, known):
                text += f"; if it is a vLLM method: {{method: vllm, config: {{method: {show_text(given)}}}}}"
        else:
            used = {key for model in _choices(schema["discriminator"], root).values() for key in model["properties"]}
            slip = next((key for key in value if key not in used and closest(key, [tag])), None)
            hint = f"; got the key {show_text(slip)}, did you mean {tag}?" if slip else ""
            text = f"missing; allowed: {', '.join(known)}{hint}"
        return [Mistake(join_key(path, tag), text)]
    if kind == "wrong_element":
        wrong = entry["ctx"]
        expected = wrong["allowed"] if wrong["at"] else allowed(schema, root)
        return [Mistake(path + wrong["at"], f"got {show(wrong['value'])}; allowed: {expected}")]
    if kind == "missing":
        return [Mistake(path, f"missing; allowed: {allowed(schema, root)}")]
    if kind == "extra_forbidden":
        section, _, _ = _locate(entry["loc"][:-1], root)
        return [Mistake(path, _unknown_key(section, str(entry["loc"][-1]), value, container, root))]
    if kind == "invalid_key":
        return [Mistake(path, f"got {show(entry['loc'][-1])} as a key; allowed: {', '.join(container['properties'])}")]
    if kind in ("too_short", "too_long"):
        return [Mistake(path, f"got a list of {len(value)}; allowed: {allowed(schema, root)}")]
    if kind in ("value_error", "assertion_error") and (reason := str(entry["ctx"]["error"])):
        return [Mistake(path, f"got {show(value)}; {show_text(reason, 300)}")]
    bare, or_null = _nullable(schema)
    if "enum" in bare or "const" in bare:
        return [Mistake(path, unknown_word(value, _words(bare), or_null))]
    return [Mistake(path, f"got {show(value)}; allowed: {allowed(schema, root)}")]


def _unknown_key(section: str, key: str, value: object, container: Schema, root: Schema) -> str:
    known = list(container["properties"])
    hint = did_you_mean(key, known)
    elsewhere = [f"{other}.{key}" for other, keys in _sections(root).items() if key in keys]
    if owners := _owners(section, key, container, root):
        hint = f"; it belongs to {owners}"
    elif elsewhere:
        hint = f"; did you mean {elsewhere[0]}?"
    return f"unknown key (got {show(value)}); allowed: {', '.join(known)}{hint}"


def _owners(section: str, key: str, container: Schema, root: Schema) -> str:
    """The other choices of the section that is checked as `container` which do have `key`, in words."""
    for schema in root["properties"].values():
        discriminator = schema.get("discriminator")
        models = _choices(discriminator, root) if discriminator else {}
        if any(model is container for model in models.values()):
            tags = [tag for tag, model in models.items() if key in model["properties"]]
            return f"{section}.{discriminator['propertyName']} {' and '.join(tags)}" if tags else ""
    return ""


def _choices(discriminator: Schema, root: Schema) -> dict[str, Schema]:
    """Returns the models of a discriminator, by the values that choose them."""
    return {tag: _definition(reference, root) for tag, reference in discriminator["mapping"].items()}


def _definition(reference: str, root: Schema) -> Schema:
    model: Schema = root["$defs"][reference.rsplit("/", 1)[1]]
    return model


def _sections(root: Schema) -> dict[str, list[str]]:
    return {name: _keys(schema, root) for name, schema in root["properties"].items()}


def _models(schema: Schema, root: Schema) -> list[Schema]:
    """Returns the models that a section's schema allows."""
    return [_definition(choice["$ref"], root) for choice in schema.get("oneOf", [schema]) if "$ref" in choice]


def _keys(schema: Schema, root: Schema) -> list[str]:
    return list(dict.fromkeys(key for model in _models(schema, root) for key in model.get("properties", {})))


def _locate(location: Sequence[str | int], root: Schema) -> tuple[str, Schema, Schema]:
    """Follows pydantic's location; returns the dotted path, the schema there, and the schema of its section."""
    path, schema, container = "", root, root
    for step in location:
        if "discriminator" in schema:  # pydantic's location has the choice made here, which is not a key of the file
            schema = _choices(schema["discriminator"], root)[str(step)]
            continue
        if "items" in schema:
            path, schema = f"{path}[{step}]", schema["items"]
            continue
        if "$ref" in schema:
            schema = _models(schema, root)[0]
        container = schema
        path = join_key(path, step)
        schema = container.get("properties", {}).get(step, {})
    return path, schema, container


def _words(schema: Schema) -> list[str]:
    return [str(word) for word in schema.get("enum", [schema.get("const")])]


def _nullable(schema: Schema) -> tuple[Schema, str]:
    """Returns the schema of values other than null, and the words for null if it is allowed."""
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    # Where null is not the default, other keys decide whether it is allowed.
    or_null = ", or null" if choices and schema.get("default", ...) is None else ""
    return (choices[0] if choices else schema), or_null


def allowed(schema: Schema, root: Schema) -> str:
    """Describes the allowed values of `schema`."""
    bare, or_null = _nullable(schema)
    if "allowed" in schema:  # given with the key
        return f"{schema['allowed']}{or_null}"
    if "enum" in bare or "const" in bare:
        return ", ".join(_words(bare)) + or_null
    kind = bare.get("type", "")
    if kind in _NUMBERS:
        return f"{_NUMBERS[kind]}{_range(bare)}{or_null}"
    return f"{_KINDS[kind]}{or_null}" if kind in _KINDS else _section(schema, root)


def _section(schema: Schema, root: Schema) -> str:
    models = _models(schema, root)
    if len(models) > 1:
        tags = " or ".join(_choices(schema["discriminator"], root))
        return f"a section with the key {schema['discriminator']['propertyName']} ({tags}) and the keys of that choice"
    keys = _keys(schema, root) or list(schema.get("properties", {}))
    if not keys:
        return str(schema.get("description", "see the documentation of its method"))
    return f"a section with the keys {', '.join(keys)}"


def _range(schema: Schema) -> str:
    low = f" above {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else ""
    if "minimum" in schema:
        low = f" from {schema['minimum']}"
    if "exclusiveMaximum" in schema:
        return f"{low}{',' * bool(low)} below {schema['exclusiveMaximum']}"
    if "maximum" in schema:
        return f"{low} {'to' if 'from' in low else 'up to'} {schema['maximum']}"
    return f"{low} up" if "from" in low else low
