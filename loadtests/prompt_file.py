"""Reads the prompts of a load test from JSON Lines."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from loadtests.stream.client import CHAT, COMPLETIONS

FOLDER = Path(__file__).parent / "prompts"
_ALLOWED = (
    'allowed per line: {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}, ...]}, optionally '
    '"max_tokens" and "temperature"'
)


class PromptsError(ValueError):
    """A file of prompts cannot be used; str() says where and why."""


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: str
    content: str


class Prompt(BaseModel):
    """A text to complete or a chat to answer.

    Attributes:
        prompt: text to complete; None for a chat.
        messages: chat so far; None for a completion.
        max_tokens: most output tokens; None takes `--max-tokens`.
        temperature: sampling temperature; None takes `--temperature`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = Field(default=None, min_length=1)
    messages: list[Message] | None = Field(default=None, min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Prompt":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either `prompt` or `messages`")
        return self

    @property
    def path(self) -> str:
        """URL path of the API that answers it."""
        return COMPLETIONS if self.messages is None else CHAT

    def body(self, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Body of the request.

        Args:
            model: name of the served model.
            options: further fields; the prompt's own fields replace them.
        """
        return {"model": model} | dict(options) | self.model_dump(exclude_none=True)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Reads a file of prompts, one JSON object per line; empty lines are skipped.

    Raises:
        PromptsError: the file cannot be read, has an invalid line, or no prompt.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptsError(f"{path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Prompt.model_validate(json.loads(line)))
        except (ValidationError, ValueError) as error:
            raise PromptsError(f"{path}, line {number}: {_short(error)}; {_ALLOWED}") from None
    if not found:
        raise PromptsError(f"{path} has no prompts; {_ALLOWED}")
    return tuple(found)


@functools.cache
def prompts_of(scenario: str, given: str) -> tuple[Prompt, ...]:
    """Prompts of a scenario, read once per process.

    Args:
        scenario: its name.
        given: file that replaces the scenario's own; empty for none.

    Raises:
        PromptsError: see `read_prompts`.
    """
    return read_prompts(Path(given) if given else FOLDER / f"{scenario}.jsonl")


def _short(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f"not JSON ({error})"
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"]).removeprefix("Value error, ")
