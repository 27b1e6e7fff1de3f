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


def test_lines_are_texts_or_chats_with_their_options(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "one"},
        "",
        {"messages": [{"role": "user", "content": "two"}], "workload": "chat", "max_tokens": 5, "temperature": 0.7},
    )
    one, two = read_prompts([path])
    assert (one.prompt, one.workload, one.max_tokens, one.temperature) == ("one", "all", None, None)
    assert two.messages is not None
    assert (two.messages[0].content, two.workload, two.max_tokens, two.temperature) == ("two", "chat", 5, 0.7)
    assert two.where == f"--prompts {path}, line 3"


CHAT = [{"role": "user", "content": "two"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "three"}]
SHAREGPT = [{"from": "human", "value": "two"}, {"from": "gpt", "value": "three"}]


@pytest.mark.parametrize(
    "value",
    [
        CHAT,
        {"messages": ANSWERED},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}]}]},
        {"id": "x", "conversations": SHAREGPT},
    ],
    ids=["list", "answered", "parts", "sharegpt"],
)
@pytest.mark.parametrize("as_list", [True, False])
def test_chats_in_the_forms_of_data_sets(tmp_path: Path, value: object, as_list: bool) -> None:
    lines = [["one", value]] if as_list else ['"one"', value]
    one, two = read_prompts([write(tmp_path / "p", *lines)])
    assert (one.prompt, two.messages) == ("one", [Message(role="user", content="two")])


def test_texts_need_no_model_and_chats_its_template(tmp_path: Path) -> None:
    assert read_texts(write(tmp_path / "p", {"prompt": "one"}), "no/model") == ("one",)
    [text] = read_texts(write(tmp_path / "p", CHAT), str(model_path("target")))
    assert "two" in text
    assert text != "two"


def test_a_model_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}: its tokenizer cannot be read"):
        load_tokenizer(str(tmp_path))


def test_several_files_are_a_workload_each(tmp_path: Path) -> None:
    code = write(tmp_path / "code.jsonl", {"prompt": "one"}, {"prompt": "two", "workload": "edits"})
    texts = write(tmp_path / "other.json", ["three"])
    found = [(one.prompt, one.workload) for one in read_prompts([code, texts])]
    assert found == [("one", "code"), ("two", "edits"), ("three", "other")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("3", "line 2: neither a text nor a JSON object"),
        ({"text": "x"}, "line 2: text: unknown key"),
        ({}, "line 2: either `prompt` or `messages`"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "y"}]}, "either `prompt` or `messages`"),
        ({"messages": [{"role": "assistant", "content": "y"}]}, "messages: nothing before the assistant's"),
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


@pytest.mark.parametrize("schema", [{"type": "object"}, {}])
def test_outputs_may_have_a_schema(tmp_path: Path, schema: dict[str, str]) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "x", "schema": schema},
        {"conversations": SHAREGPT, "schema": schema},
        {"prompt": "x"},
    )
    assert [one.output_schema for one in read_prompts([path])] == [schema, schema, None]


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_prompts([tmp_path / "nothing.jsonl"])
    with pytest.raises(UserError, match="there are no prompts in it"):
        read_prompts([write(tmp_path / "empty.jsonl", "")])
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(UserError, match="not in UTF-8"):
        read_prompts([tmp_path / "latin.jsonl"])
    with pytest.raises(UserError, match="prompt 1: neither a text"):
        read_prompts([write(tmp_path / "p.json", [1])])
