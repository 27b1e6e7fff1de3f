"""Formats of prompt files: the rows of data sets that people measure with, as rows of the project's own."""

from collections.abc import Sequence
from typing import Any

from vllm_spec_plugin.schema.errors import UserError

ALLOWED = (
    'allowed: JSON Lines or a JSON array, each row "a text", {"prompt": "..."}, {"messages": [{"role": "user", '
    '"content": "..."}, ...]}, or one of Spec-Bench or MT-bench ("turns"), HumanEval ("task_id", "prompt"), GSM8K '
    '("question") or ShareGPT ("conversations"); optionally with "category" or "workload", "prediction" (a text), '
    '"schema" (a JSON schema, an object), "max_tokens" and "temperature"'
)
ADVICE = 'write one row per line, with its text as "prompt"'
# Keys that rows of all formats may have.
_OPTIONS = ("workload", "prediction", "schema", "max_tokens", "temperature")
# ShareGPT's names of the roles.
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"}


def row_of(value: Any, where: str) -> dict[str, Any]:
    """Returns a row of any format with the keys of `GivenPrompt`; empty for a conversation without a question.

    Args:
        where: file and line, for messages.

    Raises:
        UserError: its format is not known.
    """
    if isinstance(value, str):
        return {"prompt": value}
    if isinstance(value, list) and is_chat(value):
        return {"messages": value}
    if not isinstance(value, dict):
        raise UserError(f"{where}: neither a text nor a JSON object; {ALLOWED}; {ADVICE}")
    row = dict(value)
    if "category" in row:
        row = {"workload": row.pop("category")} | row
    # Other keys of data sets are answers, tests and sources.
    own = {key: row[key] for key in _OPTIONS if key in row}
    match row:
        case {"messages": _}:
            return row
        case {"turns": [*turns]}:
            return own | {"messages": [{"role": "user", "content": one} for one in turns[:1]], "turns": turns[1:]}
        case {"conversations": [*turns]}:
            chat = _recorded(turns)
            return own | {"messages": chat} if chat else {}
        case {"task_id": str(task), "prompt": prompt}:
            return {"workload": task.partition("/")[0]} | own | {"prompt": prompt}
        case {"question": question}:
            return own | {"messages": [{"role": "user", "content": question}]}
        case {"prompt": _}:
            return row
    keys = ", ".join(map(repr, value)) or "none"
    raise UserError(f"{where}: no known format: its keys are {keys}; {ALLOWED}; {ADVICE}")


def is_chat(value: list[Any]) -> bool:
    """Returns whether a list is the messages of one chat."""
    return bool(value) and all(isinstance(item, dict) and "role" in item for item in value)


def _recorded(turns: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns ShareGPT's conversation from its first question to its last one, behind the system's message."""
    given = [turn for turn in turns if isinstance(turn, dict)]
    chat = [{"role": _ROLES.get(str(one.get("from")), one.get("from")), "content": one.get("value")} for one in given]
    asked = [number for number, message in enumerate(chat) if message["role"] == "user" and message["content"]]
    if not asked:
        return []
    system = [message for message in chat[: asked[0]] if message["role"] == "system"]
    return system + chat[asked[0] : asked[-1] + 1]
