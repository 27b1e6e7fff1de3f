"""The acceptance test: each check fails by invented figures, and the command runs against a mock server."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.chaos.clients import Answer, Expected, Tokens, bad_requests
from tests.acceptance.chaos.run import agreement_check, faults_check, refusal_check, survivors_check
from tests.acceptance.load import load_checks
from tests.acceptance.served import Ending, bad_lines, ending_check, log_check
from tests.acceptance.verdicts import Verdict, report_of
from tests.unit.loadtests.mock import mock
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS, RANKS_DIFFER, WRONG_TREE
from vllm_spec_tools.report.provenance import provenance

ROOT = Path(__file__).parents[3]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.acceptance", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra `loadtest` is not installed")
def test_a_load_profile_is_run_and_checked(tmp_path: Path) -> None:
    with mock() as server:
        done = run(
            "--host", server.base_url, "--only", "ramp", "--users", "6", "--seconds", "2", "--out", str(tmp_path)
        )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["passed"], len(summary["checks"])) == (True, 6)
    assert json.loads((tmp_path / "ramp.json").read_text())["all"]["requests"] > 10


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--host", "http://127.0.0.1:1", "--only", "chaos"), 2, "error: --host is for ramp and spike"),
        (("--config", "nowhere.yaml"), 2, "error: nowhere.yaml"),
        (("--host", "http://127.0.0.1:1", "--only", "spike"), 1, "FAILED  spike: Locust writes its report"),
    ],
)
def test_what_cannot_be_run_fails(options: tuple[str, ...], status: int, words: str, tmp_path: Path) -> None:
    done = run(*options, "--out", str(tmp_path))
    assert done.returncode == status
    assert words in done.stderr + done.stdout


CLIENTS: dict[str, Any] = {
    "requests": 100,
    "succeeded": 100,
    "errors": {},
    "output_tokens": 6000,
    "prompt_tokens": 9000,
}
CLIENTS |= {"output_tokens_per_second": 400.0}
SERVER: dict[str, Any] = {"requests": 100.0, "output_tokens": 6000.0, "prompt_tokens": 9000.0, "draft_tokens": 4000.0}
SERVER |= {"accepted_tokens": 2500.0, "proposer_errors": 0.0, "kv_usage": 0.0, "running": 0.0, "waiting": 0.0}


def failed(clients: dict[str, Any], server: dict[str, Any], status: int | None = 0) -> list[str]:
    found = load_checks("ramp", {"all": CLIENTS | clients, "server": SERVER | server}, status, has_plugin=True)
    return [verdict.check for verdict in found if not verdict.passed]


@pytest.mark.parametrize(
    ("clients", "server", "status", "check"),
    [
        ({"errors": {"timeout": 2}}, {}, 0, "no request fails"),
        ({}, {}, 1, "no request fails"),
        ({}, {}, None, "no request fails"),
        ({"succeeded": 99}, {}, 0, "requests:"),
        ({"output_tokens": 6001}, {}, 0, "output tokens:"),
        ({}, {"prompt_tokens": None}, 0, "prompt tokens:"),
        ({}, {"draft_tokens": 0.0}, 0, "drafts are made"),
        ({}, {"accepted_tokens": 4001.0}, 0, "drafts are made"),
        ({}, {"accepted_tokens": 0.0}, 0, "drafts are made"),
        ({}, {"proposer_errors": 1.0}, 0, "no proposer fails"),
        ({}, {"proposer_errors": None}, 0, "no proposer fails"),
        ({}, {"kv_usage": 0.01}, 0, "no KV block is in use"),
        ({}, {"waiting": None}, 0, "no KV block is in use"),
    ],
)
def test_each_wrong_figure_fails_its_check_only(
    clients: dict[str, Any], server: dict[str, Any], status: int | None, check: str
) -> None:
    assert failed({}, {}) == []
    [found] = failed(clients, server, status)
    assert found.startswith(check)


def test_one_failure_is_enough_and_nothing_checked_is_one() -> None:
    good, bad = Verdict("ramp", "no request fails", True, ""), Verdict("chaos", "all are answered", False, "")
    for verdicts, passed in (([good, good], True), ([good, bad], False), ([], False)):
        assert report_of(verdicts, 1.0, provenance([], 0, ())).data["passed"] is passed


EXPECTED = [Expected((1, 2), (10, 11, 12, 13)), Expected((3,), (20, 21, 22, 23))]
SAME = [Answer(0, (10, 11, 12, 13)), Answer(1, (20, 21, 22, 23)), Answer(1, (), "cut: gone")]


def test_outputs_are_equal_or_part_where_two_tokens_tie() -> None:
    asked: list[Tokens] = []

    def top_two(gap: float) -> Any:
        def found(text: Tokens) -> dict[int, float]:
            asked.append(text)
            return {12: -1.0, 99: -1.0 - gap}

        return found

    assert agreement_check(SAME, EXPECTED, top_two(9.0)).passed
    assert not asked
    parted = [*SAME, Answer(0, (10, 11, 99, 5))]
    assert agreement_check(parted, EXPECTED, top_two(5e-5)).passed
    assert asked == [(1, 2, 10, 11)]
    assert not agreement_check(parted, EXPECTED, top_two(5e-3)).passed
    assert not agreement_check(SAME[-1:], EXPECTED, top_two(0.0)).passed
    for tokens in ((20, 21), (20, 21, 22, 23, 24), ()):
        assert not agreement_check([*SAME, Answer(1, tokens)], EXPECTED, top_two(0.0)).passed


def test_clients_that_stay_are_answered_and_faults_of_each_kind_are_counted() -> None:
    whole = [Answer(prompt, (1, 2, 3)) for prompt in (0, 1, 1)]
    assert survivors_check(whole, 2, 3).passed
    for answers, prompts, tokens in ((whole, 3, 3), (whole, 2, 4), ([*whole, Answer(0, (1,), "cut: gone")], 2, 3)):
        assert not survivors_check(answers, prompts, tokens).passed
    errors = {reason: 5.0 for reason in PROPOSER_ERRORS if reason not in (WRONG_TREE, RANKS_DIFFER)}
    assert faults_check(errors, 100.0).passed
    assert not faults_check(errors, None).passed
    assert not any(faults_check(errors | {reason: 0.0}, 100.0).passed for reason in errors)
    names = [one.name for one in bad_requests("m", 2048)]
    refusals = [(name, 400) for name in names]
    assert refusal_check(refusals, len(set(names))).passed
    assert not refusal_check(refusals[1:], len(names)).passed
    assert not refusal_check([*refusals, (names[4], 500)], len(names)).passed


def test_any_end_but_an_orderly_one_fails() -> None:
    sound = Ending(exit_status=0, seconds=2.0, processes=3, left=(), ports=(8000,), open_ports=())
    assert ending_check("server", sound).passed
    changes: tuple[Any, ...] = ({"exit_status": 1}, {"exit_status": None}, {"left": ("x",)}, {"open_ports": (8000,)})
    assert not any(ending_check("server", dataclasses.replace(sound, **change)).passed for change in changes)


SOUND_LOG = """\
(APIServer pid=7) INFO 11-22 02:13:12 [launcher.py:12] Route: /health, Methods: GET
(Worker pid=9) WARNING 11-22 02:13:12 [guard.py:99] Traceback (most recent call last):
INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 400 Bad Request
ERROR_RATE is 0
"""
ENDING = "(APIServer pid=7) INFO 11-22 04:07:37 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
# In vLLM 0.32, with the plugin and without.
LAST_WORDS = """\
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore
"""


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=8) ERROR 11-22 02:13:12 [core.py:1512] EngineCore encountered a fatal error.",
        "ERROR:    Exception in ASGI application",
        "(Worker pid=9) CRITICAL 11-22 02:13:12 [x.py:1] out of everything",
        "(Worker pid=9) Traceback (most recent call last):",
    ],
)
def test_errors_and_tracebacks_are_found_in_a_log(line: str) -> None:
    assert log_check("server", SOUND_LOG).passed
    assert bad_lines(f"{SOUND_LOG}{line}\n{SOUND_LOG}") == [line]
    assert bad_lines(f"{ENDING}{LAST_WORDS}{line}\n") == [line]


def test_only_the_death_of_an_engine_that_was_told_to_end_is_forgiven() -> None:
    assert bad_lines(SOUND_LOG + ENDING + LAST_WORDS) == []
    assert len(bad_lines(SOUND_LOG + LAST_WORDS + ENDING)) == 2
    assert len(bad_lines(ENDING + LAST_WORDS.replace("EngineDeadError", "KeyError"))) == 2
