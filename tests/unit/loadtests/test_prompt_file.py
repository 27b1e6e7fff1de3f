"""Prompts of a load test."""

from pathlib import Path

import pytest

from loadtests.options import prompts_of, request_of
from loadtests.stream.client import CHAT, COMPLETIONS
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import GivenPrompt, Message


@pytest.mark.parametrize(
    ("name", "path"), [("code", COMPLETIONS), ("edit", COMPLETIONS), ("extract", COMPLETIONS), ("chat", CHAT)]
)
def test_each_scenario_has_prompts_of_its_own(name: str, path: str) -> None:
    found = prompts_of(name)
    assert len(found) >= 6
    assert {request_of(prompt, "m", {})[0] for prompt in found} == {path}
    assert len({prompt.model_dump_json() for prompt in found}) == len(found)


def test_a_prompts_own_keys_come_before_the_options() -> None:
    prompt = GivenPrompt(prompt="a", max_tokens=3, workload="mine", prediction="b")
    assert request_of(prompt, "m", {"max_tokens": 9, "temperature": 0.5}) == (
        COMPLETIONS,
        {
            "model": "m",
            "prompt": "a",
            "max_tokens": 3,
            "temperature": 0.5,
            "prediction": {"type": "content", "content": "b"},
        },
    )
    chat = GivenPrompt(messages=[Message(role="user", content="b")])
    assert request_of(chat, "m", {}) == (CHAT, {"model": "m", "messages": [{"role": "user", "content": "b"}]})


def test_a_given_file_takes_the_place_of_a_scenarios_own_and_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    with pytest.raises(UserError, match=r"mine\.jsonl: cannot be read"):
        prompts_of("chat", str(file))
    file.write_text('{"prompt": "a"}')
    given = prompts_of("chat", str(file))
    assert [prompt.prompt for prompt in given] == ["a"]
    file.unlink()
    assert prompts_of("chat", str(file)) is given
