"""The acceptance test: its checks by invented figures, and the command against a mock server."""

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.compare import Pair, Run, comparison, run_of, run_ours, served, sharegpt
from tests.acceptance.load import load_checks
from tests.acceptance.verdicts import Verdict, report_of
from tests.mock_server import MockOptions, MockServer
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.engines.serving import ServerError
from vllm_spec_tools.report.provenance import provenance

ROOT = Path(__file__).parents[3]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.acceptance", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra `loadtest` is not installed")
def test_a_load_profile_is_run_and_checked(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with MockServer(MockOptions(port=0, ttft_ms=20, itl_ms=2, tokens_per_chunk=2.5)) as mock:
        done = run("--host", mock.base_url, "--only", "ramp", "--users", "6", "--seconds", "2", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["passed"]
    checks = {check["check"]: check["passed"] for check in summary["checks"]}
    assert checks["no request fails"]
    assert checks["no KV block is in use, no request is left"]
    assert len(checks) == 6
    assert json.loads((out / "ramp.json").read_text())["all"]["requests"] > 10
    assert (out / "ramp_stats.csv").exists()
    assert "passed  ramp: no KV block is in use" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "http://127.0.0.1:1", "--only", "chaos"), "--host is for ramp and spike, not for --only chaos"),
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = run(*options, "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr


def test_a_server_that_is_not_there_is_a_failed_check(tmp_path: Path) -> None:
    done = run("--host", "http://127.0.0.1:1", "--only", "spike", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "FAILED  spike: Locust writes its report" in done.stdout
    assert not json.loads((tmp_path / "summary.json").read_text())["passed"]


SERVER: dict[str, float | None] = {
    "requests": 100.0,
    "output_tokens": 6000.0,
    "prompt_tokens": 9000.0,
    "draft_tokens": 4000.0,
    "accepted_tokens": 2500.0,
    "proposer_errors": 0.0,
    "kv_usage": 0.0,
    "running": 0.0,
    "waiting": 0.0,
}
CLIENTS: dict[str, Any] = {
    "requests": 100,
    "succeeded": 100,
    "errors": {},
    "output_tokens": 6000,
    "prompt_tokens": 9000,
    "output_tokens_per_second": 400.0,
}


def judged(
    clients: dict[str, Any] | None = None,
    server: dict[str, float | None] | None = None,
    exit_status: int | None = 0,
    has_plugin: bool = True,
) -> list[Verdict]:
    report = {"all": CLIENTS | (clients or {}), "server": SERVER | (server or {})}
    return list(load_checks("ramp", report, exit_status, has_plugin=has_plugin))


def failed(verdicts: list[Verdict]) -> list[str]:
    return [verdict.check for verdict in verdicts if not verdict.passed]


def test_figures_that_agree_pass() -> None:
    verdicts = judged()
    assert failed(verdicts) == []
    assert len(verdicts) == 7
    assert any("server 6,000, clients 6,000" in verdict.figures for verdict in verdicts)


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"clients": {"errors": {"timeout": 2}}}, "no request fails", "2 timeout"),
        ({"exit_status": 1}, "no request fails", "exit status 1"),
        ({"exit_status": None}, "no request fails", "exit status None"),
        ({"clients": {"succeeded": 99}}, "requests:", "server 100, clients 99"),
        ({"clients": {"output_tokens": 6001}}, "output tokens:", "server 6,000, clients 6,001"),
        ({"clients": {"prompt_tokens": 8999}}, "prompt tokens:", "server 9,000, clients 8,999"),
        ({"server": {"output_tokens": None}}, "output tokens:", "server -,"),
        ({"server": {"draft_tokens": 0.0}}, "drafts are made", "0 tokens drafted"),
        ({"server": {"accepted_tokens": 4001.0}}, "drafts are made", "4,001 accepted"),
        ({"server": {"accepted_tokens": 0.0}}, "drafts are made", "0 accepted"),
        ({"server": {"draft_tokens": None}}, "drafts are made", "- tokens drafted"),
        ({"server": {"proposer_errors": 1.0}}, "no proposer fails", "1 faults"),
        ({"server": {"proposer_errors": None}}, "no proposer fails", "- faults"),
        ({"server": {"kv_usage": 0.01}}, "no KV block is in use", "0.01, 0, 0"),
        ({"server": {"waiting": None}}, "no KV block is in use", "0, 0, -"),
    ],
)
def test_each_figure_that_does_not_fails_its_check_only(changes: dict[str, Any], check: str, words: str) -> None:
    verdicts = judged(**changes)
    assert len(failed(verdicts)) == 1
    assert failed(verdicts)[0].startswith(check)
    assert words in next(verdict.figures for verdict in verdicts if not verdict.passed)


def test_no_request_at_all_is_a_failure() -> None:
    clients = {"requests": 0, "succeeded": 0, "output_tokens": 0, "prompt_tokens": 0, "output_tokens_per_second": None}
    assert "no request fails" in failed(judged(clients))


def test_without_the_servers_counts_nothing_passes_that_needs_them() -> None:
    assert len(failed(list(load_checks("ramp", {"all": CLIENTS, "server": None}, 0, has_plugin=True)))) == 6


def test_another_server_is_not_asked_for_faults_of_proposers() -> None:
    verdicts = judged(server={"proposer_errors": None}, has_plugin=False)
    assert failed(verdicts) == []
    assert len(verdicts) == 6


GOOD = Verdict("ramp", "no request fails", True, "812 requests")
BAD = Verdict("chaos", "clients that stay are answered", False, "1 failed: [timeout]")


def test_one_failure_is_enough_and_nothing_checked_is_one() -> None:
    origin = provenance([], 0, ())
    for verdicts, passed in (([GOOD, GOOD], True), ([GOOD, BAD], False), ([], False)):
        found = report_of(verdicts, 1.0, origin)
        assert found.data["passed"] is passed
        assert len(found.problems) == verdicts.count(BAD)


RUN = Run(latency=0.012, requests=20, tokens=1280)
PAIR = Pair(RUN, dataclasses.replace(RUN, latency=0.0115))


def compared(ours: Pair, theirs: Pair = PAIR) -> list[Verdict]:
    return list(comparison("compare", 8, [ours, PAIR], [theirs, PAIR]))


def test_clients_that_count_as_the_server_pass_and_latencies_are_reported() -> None:
    verdicts = compared(PAIR)
    assert [verdict.passed for verdict in verdicts] == [True, True, None]
    assert "20 requests, 1280 tokens, 0 failed (server: 20, 1280)" in verdicts[0].figures
    assert verdicts[2].outcome == "reported"
    assert "ours 12.00 and 12.00, vllm bench 12.00 and 12.00 ms" in verdicts[2].figures


@pytest.mark.parametrize("change", [{"requests": 19}, {"tokens": 1279}, {"failed": 1}, {"requests": 0, "tokens": 0}])
def test_a_client_that_counts_something_else_fails(change: dict[str, int]) -> None:
    wrong = PAIR._replace(client=dataclasses.replace(RUN, **change))
    assert [verdict.passed for verdict in compared(wrong)] == [False, True, None]
    assert [verdict.passed for verdict in compared(PAIR, wrong)] == [False, True, None]


def test_responses_that_are_too_short_by_both_counts_fail() -> None:
    short = dataclasses.replace(RUN, tokens=1279)
    assert not compared(Pair(short, dataclasses.replace(short, latency=0.0115)))[0].passed


@pytest.mark.parametrize(("latency", "passed"), [(0.0115, True), (0.05, True), (0.0112, False), (math.nan, False)])
def test_a_late_client_passes_and_one_that_is_faster_than_the_server_fails(latency: float, passed: bool) -> None:
    verdicts = compared(PAIR._replace(client=dataclasses.replace(RUN, latency=latency)))
    assert [verdict.passed for verdict in verdicts] == [True, passed, None]


def test_a_server_without_a_clock_of_its_own_fails() -> None:
    assert not compared(PAIR._replace(server=dataclasses.replace(RUN, latency=math.nan)))[1].passed


def test_the_servers_counts_are_increases_of_its_counters() -> None:
    text = """
vllm:request_success_total{finished_reason="length"} %d
vllm:generation_tokens_total %d
vllm:e2e_request_latency_seconds_sum %g
vllm:e2e_request_latency_seconds_count %d
"""
    before, after = (ServerMetrics.parse(text % values) for values in ((5, 100, 2.5, 5), (25, 1380, 4.5, 25)))
    assert served(before, after) == Run(0.1, 20, 1280)


def test_vllm_reads_first_turns_as_prompts_and_its_result_is_read() -> None:
    entries = json.loads(sharegpt(["def a", "def b"]))
    assert [entry["conversations"][0]["value"] for entry in entries] == ["def a", "def b"]
    assert all(len(entry["conversations"]) >= 2 for entry in entries)
    figures = {"mean_e2el_ms": 99.0, "completed": 20, "failed": 1, "total_output_tokens": 1216}
    found = run_of(figures)
    assert found == Run(0.099, 20, 1216, 1)
    with pytest.raises(KeyError):
        run_of({"completed": 20})


def test_our_client_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"our client ended with 2 and no result; log: .*; its last line: "):
        run_ours(["def a"], 1, "http://127.0.0.1:1", tmp_path / "ours")
