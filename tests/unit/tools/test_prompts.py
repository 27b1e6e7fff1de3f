"""The file of prompts: what it may hold, and what is said where it holds something else."""

import json
from pathlib import Path

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import Message, load_tokenizer, read_prompts, read_texts


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


CHAT = [{"role": "user", "content": "two"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "three"}]
SHAREGPT = [{"from": "human", "value": "two"}, {"from": "gpt", "value": "three"}]
PARTS = [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}]
OPTIONS = {"workload": "chat", "max_tokens": 5, "temperature": 0.7, "schema": {}}


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize(
    ("value", "options"),
    [
        (CHAT, {}),
        ({"messages": ANSWERED}, OPTIONS),
        ({"messages": [{"role": "user", "content": PARTS}]}, {"schema": {"type": "object"}}),
        ({"id": "x", "conversations": SHAREGPT}, OPTIONS),
    ],
    ids=["list", "answered", "parts", "sharegpt"],
)
def test_texts_and_chats_in_the_forms_of_data_sets_with_their_options(
    tmp_path: Path, value: object, options: dict[str, object], as_list: bool
) -> None:
    given = value | options if isinstance(value, dict) else value
    one, two = read_prompts([write(tmp_path / "p", *([["one", given]] if as_list else ['"one"', "", given]))])
    assert (one.prompt, one.workload, one.max_tokens, one.temperature, one.output_schema) == ("one", "all", *[None] * 3)
    assert two.messages == [Message(role="user", content="two")]
    found = (two.workload, two.max_tokens, two.temperature, two.output_schema)
    assert found == (options.get("workload", "all"), *map(options.get, ("max_tokens", "temperature", "schema")))
    assert two.where == f"--prompts {tmp_path / 'p'}, {'prompt 2' if as_list else 'line 3'}"


def test_texts_need_no_model_and_chats_its_template(tmp_path: Path) -> None:
    assert read_texts(write(tmp_path / "p", {"prompt": "one"}), "no/model") == ("one",)
    [text] = read_texts(write(tmp_path / "p", CHAT), str(model_path("target")))
    assert "two" in text
    assert text != "two"
    with pytest.raises(UserError, match=f"{tmp_path}: its tokenizer cannot be read"):
        load_tokenizer(str(tmp_path))


def test_several_files_are_a_workload_each(tmp_path: Path) -> None:
    code = write(tmp_path / "code.jsonl", {"prompt": "one"}, {"prompt": "two", "workload": "edits"})
    found = [(one.prompt, one.workload) for one in read_prompts([code, write(tmp_path / "other.json", ["three"])])]
    assert found == [("one", "code"), ("two", "edits"), ("three", "other")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("3", "line 2: neither a text nor a JSON object"),
        ({"text": "x"}, "line 2: text: unknown key"),
        ({}, "line 2: either `prompt` or `messages`"),
        ({"prompt": "x", "messages": CHAT}, "either `prompt` or `messages`"),
        ({"messages": [{"role": "assistant", "content": "y"}]}, "messages: nothing before the assistant's"),
        ({"conversations": "x"}, "line 2: conversations: unknown key"),
        ({"prompt": "x", "workload": 3}, "line 2: workload: "),
        ({"prompt": "x", "schema": '{"type": "object"}'}, "line 2: schema: Input should be a valid dictionary"),
        ({"prompt": "x", "output_schema": {}}, "line 2: output_schema: unknown key"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "p.jsonl", {"prompt": "x"}, line)
    with pytest.raises(UserError) as error:
        read_prompts([path])
    assert f"--prompts {path}, " in str(error.value)
    assert message in str(error.value)
    assert "allowed: JSON Lines or a JSON list" in str(error.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"\n", "there are no prompts in it"),
        (b'{"prompt": "\xe9"}', "not in UTF-8"),
        (b"[1]", "prompt 1: neither a text"),
    ],
)
def test_files_that_are_none_are_told(tmp_path: Path, raw: bytes | None, message: str) -> None:
    path = tmp_path / "p.jsonl"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(UserError, match=message):
        read_prompts([path])
