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

from tests.acceptance.compare import Run, latency_check, run_of, run_ours, sharegpt
from tests.acceptance.load import load_checks
from tests.acceptance.verdicts import Verdict, report_of
from tests.mock_server import MockServer
from vllm_spec_tools.mock_server.options import MockOptions
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.serving import ServerError

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


RUN = Run(latency=12.0, requests=20, failed=0, tokens=1280, served=11.5)


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.09, True), (0.91, True), (1.11, False), (0.89, False)])
def test_latency_of_both_clients_may_differ_by_a_tenth(factor: float, passed: bool) -> None:
    verdict = latency_check("compare", 8, [dataclasses.replace(RUN, latency=12.0 * factor)] * 2, [RUN] * 2)
    assert verdict.passed is passed
    assert f"ratio of the means over the server's {factor:.3f}" in verdict.figures


@pytest.mark.parametrize("change", [{"requests": 0, "tokens": 0}, {"tokens": 1279}, {"failed": 1}])
def test_runs_with_failures_or_short_responses_are_not_compared(change: dict[str, int]) -> None:
    verdict = latency_check("compare", 1, [RUN], [dataclasses.replace(RUN, **change)])
    assert not verdict.passed
    assert "requests, tokens, failed of each run" in verdict.figures


def test_a_server_that_is_faster_in_some_runs_does_not_count() -> None:
    """By its own clock the server was a third faster for our client; only a client that reads late differs."""
    assert latency_check("compare", 1, [dataclasses.replace(RUN, latency=8.0, served=11.5 * 2 / 3)], [RUN]).passed
    verdict = latency_check("compare", 1, [dataclasses.replace(RUN, latency=8.0)], [RUN])
    assert not verdict.passed
    assert "ratio of the means over the server's 0.667" in verdict.figures


def test_a_server_without_a_clock_of_its_own_passes_nothing() -> None:
    assert not latency_check("compare", 1, [dataclasses.replace(RUN, served=math.nan)], [RUN]).passed


def test_vllm_reads_first_turns_as_prompts_and_its_result_is_read() -> None:
    entries = json.loads(sharegpt(["def a", "def b"]))
    assert [entry["conversations"][0]["value"] for entry in entries] == ["def a", "def b"]
    assert all(len(entry["conversations"]) >= 2 for entry in entries)
    figures = {"mean_e2el_ms": 99.0, "completed": 20, "failed": 1, "total_output_tokens": 1216}
    found = run_of(figures)
    assert (found.latency, found.requests, found.failed, found.tokens) == (99.0, 20, 1, 1216)
    with pytest.raises(KeyError):
        run_of({"completed": 20})


def test_our_client_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"our client ended with 2 and no result; log: .*; its last line: "):
        run_ours(["def a"], 1, "http://127.0.0.1:1", tmp_path / "ours")
