"""Built-in prompts whose outputs have a JSON schema.

Strings are short and numbers have few digits: a small model would write them for as long as it may.
"""

import json
from collections.abc import Iterator
from typing import Any


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_WORD: dict[str, Any] = {"type": "string", "pattern": "^[a-z_]{1,12}$"}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 999}
_FLAG: dict[str, Any] = {"type": "boolean"}

_PARAMETER = _object(
    parameter_name=_WORD,
    annotation={"enum": ["int", "float", "str", "bool", "list", "dict", "None"]},
    is_optional=_FLAG,
)
_FUNCTION = _object(
    function_name=_WORD,
    visibility={"enum": ["public", "protected", "private"]},
    parameters=_list(_PARAMETER, 1, 3),
    return_annotation={"enum": ["int", "float", "str", "bool", "list", "dict", "None"]},
)
_CALL = _object(
    tool={"enum": ["search_the_files", "read_a_file", "write_a_file", "run_the_tests"]},
    arguments=_object(file_name=_WORD, first_line=_NUMBER, last_line=_NUMBER),
    ask_for_permission=_FLAG,
)
_ISSUE = _object(
    severity={"enum": ["blocker", "critical", "major", "minor", "trivial"]},
    component={"enum": ["parser", "compiler", "interpreter", "standard library", "documentation"]},
    is_regression=_FLAG,
    affected_versions=_list({"enum": ["3.11", "3.12", "3.13", "3.14"]}, 1, 3),
    location=_object(module_name=_WORD, line_number=_NUMBER),
)
_ORDER = _object(
    customer=_object(first_name=_WORD, country={"enum": ["France", "Germany", "Italy", "Spain"]}),
    items=_list(_object(article=_WORD, quantity=_NUMBER, is_gift=_FLAG), 1, 3),
    payment_method={"enum": ["credit card", "bank transfer", "cash on delivery"]},
)

_ASKED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "the signature": (_FUNCTION, ("get_name", "read_lines", "is_empty", "add_item")),
    "the tool call": (_CALL, ("find the callers", "open the config", "fix the typo", "check the change")),
    "the issue": (_ISSUE, ("a crash on exit", "a slow import", "a wrong message", "a broken link")),
    "the order": (_ORDER, ("two books", "a lamp", "three chairs", "a bicycle")),
}


def _requests() -> Iterator[tuple[str, str]]:
    for turn in range(min(len(subjects) for _, subjects in _ASKED.values())):
        for what, (schema, subjects) in _ASKED.items():
            yield f"# {subjects[turn]}: {what} as JSON\n", json.dumps(schema)


STRUCTURED = tuple(_requests())
"""Prompts and the schemas of their outputs, as JSON; the schemas take turns."""
