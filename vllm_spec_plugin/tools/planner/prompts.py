"""The file of prompts, as it is given."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.prompts import read_prompts

__all__ = ["GivenPrompt", "read_given"]

_ALLOWED = (
    'allowed per line: {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}, ...]}, with "workload", '
    '"max_tokens" and "temperature" if wanted'
)


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: str
    content: str


class GivenPrompt(BaseModel):
    """A text to complete, or a chat to answer.

    Attributes:
        prompt: the text.
        messages: the chat.
        workload: what it is an example of; figures are told apart by it.
        max_tokens: most output tokens; None is what the options say.
        temperature: of its sampling; None is what the options say.
        where: in its file.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = Field(default=None, min_length=1)
    messages: list[_Message] | None = Field(default=None, min_length=1)
    workload: str = Field(default="all", min_length=1, max_length=40)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=10)
    where: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "GivenPrompt":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either `prompt` or `messages`")
        return self


def read_given(paths: Sequence[Path]) -> tuple[GivenPrompt, ...]:
    """Reads files of JSON Lines, one object per line, empty lines do not count; or JSON lists of texts.

    Args:
        paths: at least one; of several each is a workload of its file's name, where its lines do not say another.

    Raises:
        UserError: one cannot be read, a line is something else, or there is none.
    """
    several = len(paths) > 1
    return tuple(prompt for path in paths for prompt in _read(path, path.stem[:40] if several else "all"))


def _read(path: Path, workload: str) -> Sequence[GivenPrompt]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise UserError(f"--prompts {path}: cannot be read: {reason}; {_ALLOWED}") from None
    if text.lstrip().startswith("["):
        texts = read_prompts(path)
        return [
            GivenPrompt(prompt=text, workload=workload, where=f"{path}, text {at}") for at, text in enumerate(texts, 1)
        ]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"--prompts {path}, line {number}"
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise UserError(f"{where}: not a JSON object; {_ALLOWED}")
            if "where" in values:
                raise UserError(f"{where}: where: unknown key; {_ALLOWED}")
            found.append(GivenPrompt.model_validate({"workload": workload} | values | {"where": where}))
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: no JSON: {error}; {_ALLOWED}") from None
        except ValidationError as error:
            raise UserError(f"{where}: {_short(error)}; {_ALLOWED}") from None
    if not found:
        raise UserError(f"--prompts {path}: there are no prompts in it; {_ALLOWED}")
    return found


def _short(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    text = "unknown key" if first["type"] == "extra_forbidden" else str(first["msg"]).removeprefix("Value error, ")
    return f"{key}: {text}" if key else text
