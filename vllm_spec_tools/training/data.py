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
    by_digest: dict[str, Document] = {}
    for source in sources:
        for document in _read(source, render):
            if document.text.strip():
                by_digest[_digest(document)] = document
    if not by_digest:
        raise UserError(f"--data {' '.join(map(_shown, sources))}: no text in there; allowed: {_ALLOWED}")
    digests = sorted(by_digest)
    num_held_out = sum(int(digest[:8], 16) < HELD_OUT_SHARE * 2**32 for digest in digests)
    total = hashlib.sha256("".join(digests).encode()).hexdigest()
    if len(digests) == 1:
        return _split_in_two(by_digest[digests[0]], total)
    num_held_out = min(max(num_held_out, 1), len(digests) - 1)
    documents = [by_digest[digest] for digest in digests]
    return Data(tuple(documents[num_held_out:]), tuple(documents[:num_held_out]), total)


def _stdlib() -> Data:
    from vllm_spec_tools.demo.corpus import load_corpus

    try:
        corpus = load_corpus()
    except FileNotFoundError as error:
        raise UserError(f"--data {STDLIB}: {error}") from None
    parts = [sorted(map(Document, texts), key=_digest) for texts in (corpus.train, corpus.held_out)]
    digests = sorted(_digest(document) for part in parts for document in part)
    return Data(tuple(parts[0]), tuple(parts[1]), hashlib.sha256("".join(digests).encode()).hexdigest())


def _digest(document: Document) -> str:
    return hashlib.sha256(document.text.encode("utf-8", "surrogatepass")).hexdigest()


def _split_in_two(document: Document, sha256: str) -> Data:
    """A single text's end is held out: of everything else nothing would be left to measure on."""
    end = int(len(document.text) * (1 - 2 * HELD_OUT_SHARE))
    if not 0 < end < len(document.text):
        raise UserError("--data: a single text of less than two characters; allowed: more text")
    return Data((Document(document.text[:end]),), (Document(document.text[end:]),), sha256)


def _read(source: str, render: Render) -> Iterator[Document]:
    path = Path(source)
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    yield from _read_file(file, render, skip=True)
        elif path.exists():
            yield from _read_file(path, render, skip=False)
        else:
            raise UserError(f"--data {_shown(source)}: no such file or folder; allowed: {_ALLOWED}")
    except OSError as error:
        raise UserError(f"--data {_shown(source)}: cannot be read: {error.strerror or error}") from None


def _read_file(path: Path, render: Render, *, skip: bool) -> Iterator[Document]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        if not skip:
            raise UserError(f"--data {_shown(str(path))}: is not text in UTF-8; allowed: {_ALLOWED}")
    elif path.suffix == ".jsonl":
        yield from _read_jsonl(path, text, render)
    else:
        yield Document(text)


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
