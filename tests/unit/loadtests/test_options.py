"""Options, load profiles and prompts."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from loadtests.client import CHAT, COMPLETIONS
from loadtests.options import PROFILES, check_options, origin_of, prompts_of, request_of, without_credentials
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import GivenPrompt, Message
from vllm_spec_tools.report.provenance import command_line

NAMES = ("slo_ttft", "slo_tpot", "slo_e2e", "rate", "body", "load_profile")
OPTIONS: dict[str, Any] = dict.fromkeys((*NAMES, "report_json", "report_markdown", "report_html"))


def test_a_report_has_the_command_line_without_secrets() -> None:
    options = Namespace(
        locustfile="a.py", num_users=8, rate=None, body='{"n": 1}', prompts="", seed=3, model="m", api_key="secret"
    )
    origin = origin_of(options, "http://me:secret@localhost")
    assert command_line(origin) == (
        """locust --headless --host http://localhost --locustfile a.py --users 8 --body '{"n": 1}' --seed 3"""
    )
    assert (origin["models"], origin["seed"]) == ({"model": "m"}, 3)
    assert without_credentials("http://to@ken@[::1]:8000/base") == "http://[::1]:8000/base"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slo_tpot": -1.0}, "tpot.*positive"),
        ({"rate": 0.0}, "--rate.*positive"),
        ({"rate": 4.0, "load_profile": "ramp"}, "--rate and --load-profile"),
        ({"body": "{"}, "--body.*JSON"),
        ({"body": "[1]"}, "--body.*JSON object"),
        ({"report_html": "nowhere/page.html"}, "--report-html nowhere/page.html"),
    ],
)
def test_invalid_options_are_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    check_options(Namespace(**OPTIONS | {"report_json": str(tmp_path / "report.json")}))
    with pytest.raises(UserError, match=words):
        check_options(Namespace(**OPTIONS | change))


def test_the_course_of_each_profile() -> None:
    ramp, steps, spike = PROFILES.values()
    assert [ramp(8, share / 80) for share in (0, 4.9, 5, 20, 35, 40, 79.9)] == [1, 1, 2, 5, 8, 8, 8]
    assert [steps(6, share) for share in (0, 0.25, 0.5, 0.75, 0.99)] == [1, 2, 4, 6, 6]
    assert [spike(64, share) for share in (0, 0.49, 0.5, 0.74, 0.75, 0.99)] == [4, 4, 64, 64, 4, 4]
    for profile in PROFILES.values():
        for most in (1, 2, 7, 64):
            found = [profile(most, i / 800) for i in range(800)]
            assert (min(found) >= 1, max(found)) == (True, most)


def test_a_prompts_own_keys_come_before_the_options_and_chats_have_their_own_path() -> None:
    prompt = GivenPrompt(prompt="a", max_tokens=3, workload="mine", prediction="b")
    asked = {"model": "m", "prompt": "a", "max_tokens": 3, "temperature": 0.5}
    asked["prediction"] = {"type": "content", "content": "b"}
    assert request_of(prompt, "m", {"max_tokens": 9, "temperature": 0.5}) == (COMPLETIONS, asked)
    chat = GivenPrompt(messages=[Message(role="user", content="b")], schema={"type": "object"})
    path, found = request_of(chat, "m", {})
    assert (path, found["structured_outputs"]) == (CHAT, {"json": {"type": "object"}})
    paths = {name: {request_of(one, "m", {})[0] for one in prompts_of(name)} for name in ("code", "edit", "chat")}
    assert paths == {"code": {COMPLETIONS}, "edit": {COMPLETIONS}, "chat": {CHAT}}


def test_a_given_file_takes_the_place_of_a_scenarios_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    with pytest.raises(UserError, match=r"mine\.jsonl"):
        prompts_of("chat", str(file))
    file.write_text('{"prompt": "a"}')
    assert [prompt.prompt for prompt in prompts_of("chat", str(file))] == ["a"]
