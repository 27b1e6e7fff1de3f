"""Locust's own command against a mock server: a few seconds each."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.loadtests.mock import mock
from vllm_spec_tools.engines.serving import free_port

# Not imported: that would turn this process's threads into gevent's.
if importlib.util.find_spec("locust") is None:
    pytest.skip("the extra `loadtest` is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[3]


def locust(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust", "--headless", "--only-summary", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def run(
    folder: Path, *options: str, error_rate: float = 0.0
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """The report of two seconds."""
    report = folder / "report.json"
    with mock(error_rate=error_rate) as server:
        done = locust("--host", server.base_url, "-t", "2s", "--report", str(report), *options)
    return json.loads(report.read_text()), done


def test_failures_are_counted_by_kind_and_make_locust_fail(tmp_path: Path) -> None:
    found, done = run(
        tmp_path, "-f", "loadtests/locustfile.py", "-u", "4", "-r", "100", "CodeCompletion", error_rate=0.5
    )
    assert done.returncode == 1
    assert set(found["scenarios"]) == {"code"}
    assert set(found["all"]["errors"]) == {"http_5xx", "error_event", "cut"}


def test_four_worker_processes_write_one_report_that_the_server_agrees_with(tmp_path: Path) -> None:
    options = ("-f", "loadtests/locustfile.py", "-u", "12", "-r", "100", "--processes", "4", "--stop-timeout", "10")
    page = tmp_path / "page.html"
    found, done = run(tmp_path, *options, "--report-html", str(page))
    assert done.returncode == 0, done.stderr
    assert found["workers"] == {"count": 4, "missing": 0}
    assert found["server"]["agrees_with_clients"] is True
    # Each user sends one at least, however busy the machine is.
    assert found["sent"] == found["all"]["succeeded"] == found["server"]["requests"] >= 12
    assert set(found["scenarios"]) == {"code", "edit", "extract", "chat"}
    assert " ".join(found["conclusion"]) in done.stderr.replace("\n", " ")
    assert "by 4 worker processes" in page.read_text()


def test_a_master_and_a_worker_that_knows_no_options_write_one_report(tmp_path: Path) -> None:
    """Answers take 0.3 s: somebody who waited for them would make at most 4 requests per second, on any machine."""
    port, report = free_port(), tmp_path / "report.json"
    with mock(itl_ms=10) as server:
        command = [sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", "--worker"]
        worker = subprocess.Popen([*command, "--master-port", str(port)], cwd=ROOT, stderr=subprocess.DEVNULL)
        options = (
            "--rate",
            "30",
            "--max-tokens",
            "64",
            "--stop-timeout",
            "10",
            "--body",
            '{"vllm_xargs": {"spec": "off"}}',
        )
        master = ("--master", "--master-bind-port", str(port), "--expect-workers", "1", "--report", str(report))
        files = ("-f", "loadtests/locustfile.py")
        done = locust(*files, "--host", server.base_url, "-t", "2s", *options, *master)
        assert worker.wait(20) == 0
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["workers"] == {"count": 1, "missing": 0}
    assert found["server"]["agrees_with_clients"] is True
    # A Poisson process of 60 expected arrivals: 6 standard deviations.
    assert 13 < found["sent"] < 107


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "http://127.0.0.1:1"), "does not name a model"),
        (("--host", "http://127.0.0.1:1", "--slo-tpot", "-1"), "SLO tpot"),
        (("--host", "http://127.0.0.1:1", "--prompts", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_before_anything_is_asked(options: tuple[str, ...], words: str) -> None:
    # Without a time limit only the mistake ends it.
    done = locust("-f", "loadtests/locustfile.py", "-u", "1", *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


SCRIPT = """
import locust  # first: it patches ssl
from types import SimpleNamespace
from vllm_spec_tools.prompts import GivenPrompt as Prompt
from loadtests.client import ErrorKind, StreamRecord
from loadtests.users import Samples, send

fired, seen, samples = [], [], Samples.current
options = SimpleNamespace(max_tokens=5, temperature=0.0, api_key="sk-12", body='{"seed": 3}', model="llama")
request = SimpleNamespace(fire=lambda **fields: fired.append(fields))
environment = SimpleNamespace(parsed_options=options, events=SimpleNamespace(request=request))

def ask(path, body):
    seen.append((body, samples.sent))
    return StreamRecord(0.0, 0.1, error=ErrorKind.HTTP_4XX, message="wrong key sk-12: get another")

send(environment, SimpleNamespace(ask=ask), "chat", Prompt(prompt="a"))
assert seen == [({"model": "llama", "max_tokens": 5, "temperature": 0.0, "seed": 3, "prompt": "a"}, 1)], seen
assert [one.message for one in samples.measures["chat"]] == ["wrong key ***: get another"]
assert str(fired[0]["exception"]) == "http_4xx: wrong key ***: get another"
taken, master = samples.take(), Samples()
master.merge(taken)
assert (master.sent, samples.sent, samples.measures) == (1, 0, {})
assert master.measures["chat"][0].error is ErrorKind.HTTP_4XX
"""


def test_a_request_is_counted_when_it_is_sent_and_the_key_is_shown_to_nobody() -> None:
    """In a process of its own: Locust's import replaces this one's threads."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
