"""Tests which text is read for training, which is held out, and which is refused."""

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.data import Data, Document, read_data


def render(messages: list[dict[str, Any]], add_generation_prompt: bool) -> str:
    text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
    return text + ("<assistant>" if add_generation_prompt else "")


def read(*sources: Path | str) -> Data:
    return read_data([str(source) for source in sources], render)


def texts(data: Data) -> set[str]:
    return {document.text for document in (*data.train, *data.held_out)}


def documents(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"text number {number}")
    return folder


def test_folders_are_read_recursively_and_what_is_no_text_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "one.txt").write_bytes(b"one\r\nline")
    (tmp_path / "a" / "b" / "two.md").write_text("two")
    (tmp_path / "a" / "picture.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "a" / "zeros").write_bytes(b"a\0b")
    (tmp_path / "empty.txt").write_text(" \n")
    assert texts(read(tmp_path)) == {"one\nline", "two"}


def test_lines_of_json_may_be_texts_completions_or_chats(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]
    lines = [{"text": "whole"}, {"prompt": "begin", "completion": "ning"}, {"messages": chat}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    data, chat_text = read(path), Document("<user>q<assistant>r", "<user>q<assistant>", is_rendered=True)
    assert set(data.train + data.held_out) == {Document("whole"), Document("beginning", "begin"), chat_text}


def test_the_split_depends_on_each_text_alone_and_nothing_held_out_is_trained_on(tmp_path: Path) -> None:
    few = read(documents(tmp_path / "few", 100))
    documents(tmp_path / "many" / "copies", 300)
    many = read(documents(tmp_path / "many" / "first", 300).parent)
    for data, count in ((few, 100), (many, 300)):
        train, held_out = ({document.text for document in part} for part in (data.train, data.held_out))
        assert not train & held_out
        assert len(train) + len(held_out) == len(data.train) + len(data.held_out) == count
        assert 0.01 * count <= len(held_out) <= 0.125 * count
    assert set(few.held_out) < set(many.held_out)
    assert set(few.train) < set(many.train)
    assert few.sha256 == read(tmp_path / "few").sha256 != many.sha256


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_few_documents_something_is_held_out(tmp_path: Path, count: int) -> None:
    data = read(documents(tmp_path / "a", count))
    assert data.train
    assert data.held_out
    assert len("".join(texts(data))) == count * len("text number 0")


def test_the_bundled_corpus_keeps_its_own_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the standard library stands for all of it."""
    from vllm_spec_tools.demo.corpus import load_corpus

    folder = str(Path(sysconfig.get_path("stdlib"), "asyncio"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: folder)
    corpus, data = load_corpus(), read("stdlib")
    assert {document.text for document in data.held_out} == set(corpus.held_out)
    assert {document.text for document in data.train} == set(corpus.train)


LINES = {
    "{": "line 2: no JSON",
    "[1]": "line 2: got a list",
    '{"texts": "a"}': 'allowed: an object per line with a "text"',
    '{"prompt": "a"}': 'allowed: an object per line with a "text"',
    '{"messages": []}': 'allowed: an object per line with a "text"',
    '{"messages": [{"role": "user"}]}': "the model's chat template does not take these messages: 'content'",
}
FILES = {
    "none": "no such file or folder",
    "empty/": "no text in there",
    "binary": "is not text in UTF-8",
    **{f"{number}.jsonl": message for number, message in enumerate(LINES.values())},
}


@pytest.mark.parametrize(("name", "message"), FILES.items())
def test_what_holds_no_text_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for number, line in enumerate(LINES):
        (tmp_path / f"{number}.jsonl").write_text('{"text": "a"}\n' + line)
    with pytest.raises(UserError) as caught:
        read(tmp_path / name)
    assert message in str(caught.value)
    assert "allowed: " in str(caught.value)
