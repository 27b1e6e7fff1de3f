"""Prompts of a load test."""

from pathlib import Path

import pytest

from loadtests.prompt_file import FOLDER, PromptsError, prompts_of, read_prompts
from loadtests.stream.client import CHAT, COMPLETIONS


@pytest.mark.parametrize(
    ("name", "path"), [("code", COMPLETIONS), ("edit", COMPLETIONS), ("extract", COMPLETIONS), ("chat", CHAT)]
)
def test_each_scenario_has_prompts_of_its_own(name: str, path: str) -> None:
    found = read_prompts(FOLDER / f"{name}.jsonl")
    assert len(found) >= 6
    assert {prompt.path for prompt in found} == {path}
    assert len({prompt.model_dump_json() for prompt in found}) == len(found)


def test_a_prompts_own_keys_come_before_the_options(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "a", "max_tokens": 3}\n\n{"messages": [{"role": "user", "content": "b"}]}\n')
    first, second = read_prompts(file)
    assert first.body("m", {"max_tokens": 9, "temperature": 0.5}) == {
        "model": "m",
        "prompt": "a",
        "max_tokens": 3,
        "temperature": 0.5,
    }
    assert second.body("m", {}) == {"model": "m", "messages": [{"role": "user", "content": "b"}]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no prompts"),
        ("{", "line 1: not JSON"),
        ('\n["a"]', "line 2: Input should be"),
        ('{"prompt": ""}', "line 1: prompt: String should have at least 1 character"),
        ("{}", "line 1: either `prompt` or `messages`"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "either `prompt` or `messages`"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens: Input should be greater"),
        ('{"prompt": "a", "tokens": 3}', "tokens: Extra inputs are not permitted"),
        ('{"messages": [{"role": "user"}]}', r"messages\.0\.content: Field required"),
    ],
)
def test_mistakes_are_told_with_file_line_and_what_is_allowed(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(text)
    with pytest.raises(PromptsError, match=words) as caught:
        read_prompts(file)
    assert str(file) in str(caught.value)
    assert 'allowed per line: {"prompt": "..."}' in str(caught.value)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(PromptsError, match=r"nowhere\.jsonl cannot be read"):
        read_prompts(Path("nowhere.jsonl"))


def test_a_given_file_takes_the_place_of_a_scenarios_own_and_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "a"}')
    assert prompts_of("chat", "") == read_prompts(FOLDER / "chat.jsonl")
    given = prompts_of("chat", str(file))
    assert [prompt.prompt for prompt in given] == ["a"]
    file.unlink()
    assert prompts_of("chat", str(file)) is given
