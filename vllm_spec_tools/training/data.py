"""Reading training texts, and which of them are held out."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.schema.errors import UserError, show, show_reason, show_text
from vllm_spec_tools.prompts import json_lines

STDLIB = "stdlib"
HELD_OUT_SHARE = 0.05
_ALLOWED = f"text files in UTF-8, .jsonl files, folders of them, or {STDLIB}"
_KEYS = 'a "text", a "prompt" and a "completion", or "messages"'

Render = Callable[[list[dict[str, Any]], bool], str]
"""Messages of a chat, and whether an answer is to follow, as the text that the model reads."""


@dataclass(frozen=True)
class Document:
    """One text.

    Attributes:
        prompt: its beginning, which a model would continue; None is any.
        is_rendered: a chat template wrote it, special tokens included.
    """

    text: str
    prompt: str | None = None
    is_rendered: bool = False

    @property
    def is_unanswered(self) -> bool:
        """Whether it ends with its prompt, so that there is nothing to learn from before the model answers."""
        return self.prompt is not None and len(self.text) <= len(self.prompt)


@dataclass(frozen=True)
class Data:
    """Texts in two parts; nothing held out is trained on.

    Attributes:
        train: in an order that depends on their contents only.
        sha256: of all texts, whatever their order.
    """

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    sha256: str


def read_data(sources: Sequence[str], render: Render) -> Data:
    """Reads documents and holds some of them out: those whose contents' hash says so.

    Raises:
        UserError: a source cannot be read, or there is no text in all of them.
    """
    if STDLIB in sources:
        if len(sources) > 1:
            raise UserError(f"--data {STDLIB}: got other data beside it; allowed: {STDLIB} alone, or other data")
        return _stdlib()
    found = (document for source in sources for document in _read(source, render))
    by_digest = {_digest(document): document for document in found if document.text.strip()}
    if not by_digest:
        raise UserError(f"--data {' '.join(map(_shown, sources))}: no text in there; allowed: {_ALLOWED}")
    digests = sorted(by_digest)
    documents, total = [by_digest[digest] for digest in digests], _hash("".join(digests))
    if len(documents) == 1:
        # A single text's end is held out: of everything else nothing would be left to measure on.
        text = documents[0].text
        end = int(len(text) * (1 - 2 * HELD_OUT_SHARE))
        if not 0 < end < len(text):
            raise UserError("--data: a single text of less than two characters; allowed: more text")
        return Data((Document(text[:end]),), (Document(text[end:]),), total)
    num_held_out = sum(int(digest[:8], 16) < HELD_OUT_SHARE * 2**32 for digest in digests)
    num_held_out = min(max(num_held_out, 1), len(digests) - 1)
    return Data(tuple(documents[num_held_out:]), tuple(documents[:num_held_out]), total)


def _stdlib() -> Data:
    from vllm_spec_tools.demo.corpus import load_corpus

    try:
        corpus = load_corpus()
    except FileNotFoundError as error:
        raise UserError(f"--data {STDLIB}: {error}") from None
    train, held_out = (tuple(sorted(map(Document, part), key=_digest)) for part in (corpus.train, corpus.held_out))
    return Data(train, held_out, _hash("".join(sorted(map(_digest, (*train, *held_out))))))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(document: Document) -> str:
    return _hash(document.text)


def _read(source: str, render: Render) -> Iterator[Document]:
    path = Path(source)
    if not path.exists():
        raise UserError(f"--data {_shown(source)}: no such file or folder; allowed: {_ALLOWED}")
    try:
        for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
            raw = file.read_bytes()
            text = raw.decode(errors="replace")
            if b"\0" in raw or text.encode() != raw:
                if file == path:
                    raise UserError(f"--data {_shown(source)}: is not text in UTF-8; allowed: {_ALLOWED}")
            elif file.suffix == ".jsonl":
                yield from _read_jsonl(file, text, render)
            else:
                yield Document(text.replace("\r\n", "\n").replace("\r", "\n"))
    except OSError as error:
        raise UserError(f"--data {_shown(source)}: cannot be read: {error.strerror or error}") from None


def _read_jsonl(path: Path, text: str, render: Render) -> Iterator[Document]:
    source, allowed = f"--data {_shown(str(path))}", f"allowed: an object per line with {_KEYS}"
    for place, entry in json_lines(text, source, allowed):
        match entry:
            case {"text": str(whole)}:
                yield Document(whole)
            case {"prompt": str(prompt), "completion": str(completion)}:
                yield Document(prompt + completion, prompt)
            case {"messages": [*messages]} if messages and all(isinstance(message, dict) for message in messages):
                yield _chat(messages, render, place)
            case _:
                raise UserError(f"{place}: got {show(entry)}; {allowed}")


def _chat(messages: list[dict[str, Any]], render: Render, place: str) -> Document:
    answers = [number for number, message in enumerate(messages) if message.get("role") == "assistant"]
    asked = messages[: answers[-1]] if answers else messages
    try:
        return Document(render(messages, False), render(asked, True), is_rendered=True)
    except Exception as error:  # a template is a program of its own
        raise UserError(
            f"{place}: the model's chat template does not take these messages: {show_reason(error)}; "
            'allowed: "role" and "content" as the model wants them'
        ) from None


def _shown(source: str) -> str:
    return f"'{show_text(source, 200)}'"
