"""The file of prompts: what it may hold, and what is said where it holds something else."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import Message, load_tokenizer, read_files, read_prompts, read_texts


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


SPEC_BENCH = {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x", "y"]}
HUMAN_EVAL = {"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "x", "test": "y"}
GSM8K = {"question": "one", "answer": "#### 18"}
SYSTEM, FIRST, LAST = ({"from": role, "value": role} for role in ("system", "gpt", "bing"))
SPLIT = {"id": "a_1", "conversations": [FIRST, SYSTEM, *SHAREGPT, {"from": "user", "value": "four"}, LAST]}


@pytest.mark.parametrize(
    ("row", "workload", "prompt", "chat", "turns"),
    [
        (SPEC_BENCH, "writing", None, ["one"], ["two"]),
        (HUMAN_EVAL, "HumanEval", "def f():\n", None, []),
        (HUMAN_EVAL | {"category": "code"}, "code", "def f():\n", None, []),
        (GSM8K, "all", None, ["one"], []),
        (GSM8K | {"workload": "math"}, "math", None, ["one"], []),
        (SPLIT, "all", None, ["system", "two", "three", "four"], []),
        ({"prompt": "x", "category": "qa"}, "qa", "x", None, []),
        ({"messages": CHAT, "turns": ["y"]}, "all", None, ["two"], ["y"]),
    ],
)
@pytest.mark.parametrize("form", ["lines", "array", "gzip"])
def test_rows_of_data_sets_are_read_without_their_answers(
    tmp_path: Path,
    row: dict[str, object],
    workload: str,
    prompt: str,
    chat: list[str] | None,
    turns: list[str],
    form: str,
) -> None:
    path = write(tmp_path / "p", *([[row, row]] if form == "array" else [row, row]))
    if form == "gzip":
        path.write_bytes(gzip.compress(path.read_bytes()))
    [file] = read_files([path])
    assert (len(file.prompts), file.num_empty) == (2, 0)
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    one = file.prompts[1]
    assert (one.workload, one.prompt, one.turns) == (workload, prompt, turns)
    assert [message.content for message in one.messages or ()] == (chat or [])


def test_recorded_conversations_without_a_question_are_counted(tmp_path: Path) -> None:
    empty = [{"conversations": []}, {"conversations": [FIRST]}, {"conversations": [{"from": "human", "value": ""}]}]
    [file] = read_files([write(tmp_path / "p", SPLIT, *empty)])
    assert (len(file.prompts), file.num_empty) == (1, 3)


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
        ({"text": "x", "id": 1}, "line 2: no known format: its keys are 'text', 'id'; "),
        ({}, "line 2: no known format: its keys are none; "),
        ({"prompt": "x", "text": "y"}, "line 2: text: unknown key"),
        ({"turns": []}, "line 2: messages: List should have at least 1 item"),
        ({"turns": ["x", 3]}, "line 2: turns.0: Input should be a valid string"),
        ({"question": None}, "line 2: messages.0.content: Input should be a valid string"),
        ({"prompt": "x", "category": 3}, "line 2: workload: "),
        ({"prompt": "x", "messages": CHAT}, "either `prompt` or `messages`"),
        ({"messages": [{"role": "assistant", "content": "y"}]}, "messages: nothing before the assistant's"),
        ({"conversations": "x"}, "line 2: no known format: its keys are 'conversations'"),
        ({"conversations": [*SHAREGPT, {"from": "tool"}, *SHAREGPT]}, "line 2: messages.2.content: "),
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
    assert "allowed: JSON Lines or a JSON array" in str(error.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"\n", "there are no prompts in it"),
        (b'{"prompt": "\xe9"}', "not in UTF-8"),
        (b"[1]", "prompt 1: neither a text"),
        (b"[]", "there are no prompts in it; allowed: .*; write one row per line"),
        (b"title,text\n", "line 1: no JSON"),
        (b"\x1f\x8b broken", "cannot be read: "),
        (b'{"conversations": [{"from": "gpt", "value": "x"}]}', "none of its 1 conversations has a question"),
    ],
)
def test_files_that_are_none_are_told(tmp_path: Path, raw: bytes | None, message: str) -> None:
    path = tmp_path / "p.jsonl"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(UserError, match=message):
        read_prompts([path])
