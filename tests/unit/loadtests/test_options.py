"""Options, load profiles and prompts."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from loadtests.options import (
    PROFILES,
    check_options,
    extra_fields,
    origin_of,
    prompts_of,
    ramp,
    request_of,
    spike,
    steps,
    without_credentials,
)
from loadtests.stream.client import CHAT, COMPLETIONS
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import GivenPrompt, Message
from vllm_spec_tools.report.provenance import command_line

OPTIONS: dict[str, Any] = {
    "slo_ttft": None,
    "slo_tpot": None,
    "slo_e2e": None,
    "body": "",
    "rate": None,
    "load_profile": "",
    "report_json": "",
    "report_csv": "",
    "report_markdown": "",
    "report_png": "",
    "report_html": "",
}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("https://me:secret@example.com:8443/base", "https://example.com:8443/base"),
        ("http://to@ken@[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_credentials_in_a_url_are_not_shown(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_a_report_has_the_command_line_without_secrets() -> None:
    options = Namespace(
        locustfile="a.py", num_users=8, rate=None, body='{"n": 1}', prompts="", seed=3, model="m", api_key="secret"
    )
    origin = origin_of(options, "http://me:secret@localhost")
    assert command_line(origin) == (
        """locust --headless --host http://localhost --locustfile a.py --users 8 --body '{"n": 1}' --seed 3"""
    )
    assert (origin["models"], origin["seed"]) == ({"model": "m"}, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slo_tpot": -1.0}, r"SLO tpot is -1\.0: it must be a positive number"),
        ({"rate": 0.0}, r"--rate is 0\.0: it must be a positive number"),
        ({"rate": 4.0, "load_profile": "ramp"}, "--rate and --load-profile exclude each other"),
        ({"body": "{"}, "--body is not JSON"),
        ({"body": "[1]"}, "--body must be a JSON object"),
        ({"report_html": "nowhere/page.html"}, "--report-html nowhere/page.html: there is no folder .*nowhere"),
    ],
)
def test_invalid_options_are_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    check_options(Namespace(**OPTIONS | {"report_json": str(tmp_path / "report.json")}))
    with pytest.raises(UserError, match=words):
        check_options(Namespace(**OPTIONS | change))


def test_further_fields_are_json() -> None:
    assert extra_fields(Namespace(body='{"vllm_xargs": {"spec": "off"}}')) == {"vllm_xargs": {"spec": "off"}}
    assert extra_fields(Namespace(body="")) == {}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("most", [1, 2, 7, 64])
def test_a_profile_always_has_users_and_reaches_the_most(name: str, most: int) -> None:
    found = [PROFILES[name](most, i / 800) for i in range(800)]
    assert (min(found) >= 1, max(found)) == (True, most)


def test_the_course_of_each_profile() -> None:
    assert [ramp(8, share / 80) for share in (0, 4.9, 5, 20, 35, 40, 79.9)] == [1, 1, 2, 5, 8, 8, 8]
    assert [steps(6, share) for share in (0, 0.25, 0.5, 0.75, 0.99)] == [1, 2, 4, 6, 6]
    assert [spike(64, share) for share in (0, 0.49, 0.5, 0.74, 0.75, 0.99)] == [4, 4, 64, 64, 4, 4]


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
    chat = GivenPrompt(messages=[Message(role="user", content="b")], schema={"type": "object"})
    assert request_of(chat, "m", {}) == (
        CHAT,
        {
            "model": "m",
            "messages": [{"role": "user", "content": "b"}],
            "structured_outputs": {"json": {"type": "object"}},
        },
    )


def test_a_given_file_takes_the_place_of_a_scenarios_own_and_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    with pytest.raises(UserError, match=r"mine\.jsonl: cannot be read"):
        prompts_of("chat", str(file))
    file.write_text('{"prompt": "a"}')
    given = prompts_of("chat", str(file))
    assert [prompt.prompt for prompt in given] == ["a"]
    file.unlink()
    assert prompts_of("chat", str(file)) is given
