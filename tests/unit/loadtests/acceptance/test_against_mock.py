"""All of the command, against a mock server: a few seconds."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_plugin.tools.mock_server.options import MockOptions
from vllm_spec_plugin.tools.mock_server.running import MockServer

ROOT = Path(__file__).parents[4]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtests.acceptance", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra `loadtest` is not installed")
def test_a_course_is_run_and_judged(tmp_path: Path) -> None:
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
    assert "error: spike:" in done.stderr
    assert not json.loads((tmp_path / "summary.json").read_text())["passed"]
