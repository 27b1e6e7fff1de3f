"""Reads files of prompts: texts, chats, and rows of the data sets that people measure with."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from vllm_spec_plugin.schema.errors import UserError, show_reason
from vllm_spec_tools.prompt_formats import ADVICE, ALLOWED, is_chat, row_of

# The workload of prompts that name none.
ALL = "all"
_GZIP = b"\x1f\x8b"


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: str
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, value: object) -> object:
        """The text of a content given in parts."""
        if isinstance(value, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in value):
            return "".join(str(part.get("text", "")) for part in value)
        return value


class GivenPrompt(BaseModel):
    """A text to complete, or a chat to answer.

    Attributes:
        prompt: text to complete; None for a chat.
        turns: further messages of the user, each to be sent after the model's own answer to the one before.
        prediction: of the output; None has none.
        output_schema: JSON schema of the output, the key "schema"; None has none.
        max_tokens: maximum number of output tokens; None takes the command's option.
        temperature: sampling temperature; None takes the command's option.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = Field(default=None, min_length=1)
    messages: list[Message] | None = Field(default=None, min_length=1)
    turns: list[str] = []
    workload: str = Field(default=ALL, min_length=1, max_length=40)
    prediction: str | None = Field(default=None, min_length=1)
    output_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=10)
    where: str = Field(default="", exclude=True)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "GivenPrompt":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either `prompt` or `messages`")
        # Recorded chats end with the response that is to be generated.
        while self.messages and self.messages[-1].role == "assistant":
            self.messages.pop()
        if self.messages == []:
            raise ValueError("messages: nothing before the assistant's")
        return self

    def render(self, tokenizer: Any) -> str:
        """Returns the text that the model reads, a chat through the model's template.

        Raises:
            UserError: the template does not take the messages.
        """
        if self.messages is None:
            return self.prompt or ""
        messages = [message.model_dump() for message in self.messages]
        try:
            return render_chat(tokenizer, messages)
        except Exception as error:  # templates are programs
            problem = f"{self.where}: the model's chat template does not take these messages: {show_reason(error)}"
            raise UserError(f'{problem}; allowed: other messages, or the whole text as "prompt"') from None


def render_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """Writes messages as the model's prompt, ready for its answer; raises what its template raises."""
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    begin = tokenizer.bos_token
    # Templates write the first token themselves, and so do some tokenizers.
    if begin and text.startswith(begin) and tokenizer(text).input_ids[:2] == [tokenizer.bos_token_id] * 2:
        return text.removeprefix(begin)
    return text


class PromptFile(NamedTuple):
    """A file of prompts as read.

    Attributes:
        sha256: of the file's bytes.
        num_empty: recorded conversations without a question, which are left out.
    """

    path: Path
    sha256: str
    prompts: tuple[GivenPrompt, ...]
    num_empty: int = 0


def read_prompts(paths: Sequence[Path]) -> tuple[GivenPrompt, ...]:
    """Reads files of prompts; empty lines do not count.

    Args:
        paths: at least one; of several each is a workload of its file's name, unless a prompt names another.

    Raises:
        UserError: a file cannot be read, has no prompts, or has something else; names the line.
    """
    return tuple(prompt for file in read_files(paths) for prompt in file.prompts)


def read_files(paths: Sequence[Path]) -> list[PromptFile]:
    """Reads files of prompts; see `read_prompts`."""
    return [_read(path, path.stem[:40] if len(paths) > 1 else ALL) for path in paths]


def read_texts(path: Path, model: str) -> tuple[str, ...]:
    """Reads a file of prompts as the texts that a model reads.

    Args:
        path: see `read_prompts`.
        model: folder or hub name, for the chat template; not looked at if there are no chats.

    Raises:
        UserError: see `read_prompts`, or a chat cannot be rendered.
    """
    given = read_prompts([path])
    tokenizer = None if all(one.messages is None for one in given) else load_tokenizer(model)
    return tuple(one.render(tokenizer) for one in given)


def load_tokenizer(model: str) -> Any:
    """Loads the tokenizer of a model, a folder or a hub name.

    Raises:
        UserError: it cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model, local_files_only=Path(model).is_dir())
    except Exception as error:  # files from anywhere, and the library that reads them
        raise UserError(f"{model}: its tokenizer cannot be read: {show_reason(error)}") from None


def _read(path: Path, workload: str) -> PromptFile:
    source = f"--prompts {path}"
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{source}: cannot be read: it is not in UTF-8; {ALLOWED}; {ADVICE}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{source}: cannot be read: {reason}; {ALLOWED}") from None
    rows = [(row_of(value, where), where) for where, value in _values(text, source)]
    found = tuple(_prompt(row, where, workload) for row, where in rows if row)
    if not found:
        nothing = "there are no prompts in it" if not rows else f"none of its {len(rows)} conversations has a question"
        raise UserError(f"{source}: {nothing}; {ALLOWED}; {ADVICE}")
    return PromptFile(path, hashlib.sha256(raw).hexdigest(), found, len(rows) - len(found))


def _values(text: str, source: str) -> Iterable[tuple[str, Any]]:
    """Returns what each prompt is given as, and where: the items of one JSON list, or a value per line."""
    try:
        whole = json.loads(text)
    except ValueError:
        return json_lines(text, source, ALLOWED)
    if isinstance(whole, list) and not is_chat(whole):
        return [(f"{source}, prompt {number}", value) for number, value in enumerate(whole, 1)]
    return [(source, whole)]


def json_lines(text: str, source: str, allowed: str) -> Iterator[tuple[str, Any]]:
    """Yields the value of each line of JSON Lines that is not empty, and where it is.

    Raises:
        UserError: a line is not JSON; the message ends with what is `allowed`.
    """
    # Lines end where JSON Lines do: a text may hold other characters that end lines.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{source}, line {number}"
            try:
                yield where, json.loads(line)
            except ValueError as error:
                raise UserError(f"{where}: no JSON: {error}; {allowed}") from None


def _prompt(row: dict[str, Any], where: str, workload: str) -> GivenPrompt:
    if "where" in row:
        raise UserError(f"{where}: where: unknown key; {ALLOWED}")
    try:
        return GivenPrompt.model_validate({"workload": workload} | row | {"where": where})
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}." for part in first["loc"])[:-1]
        text = "unknown key" if first["type"] == "extra_forbidden" else str(first["msg"]).removeprefix("Value error, ")
        raise UserError(f"{where}: {key}{key and ': '}{text}; {ALLOWED}") from None
