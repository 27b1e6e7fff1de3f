"""Runs Locust, or any client, as a child process of a test that starts several of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_START_SECONDS = 60.0


@contextlib.contextmanager
def child(command: Sequence[str], log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process in the root of the repository; it and its children are killed at the end of the context.

    Args:
        log_path: file for its output, replaced if it exists.
    """
    with log_path.open("wb") as log:
        # A session of its own: Ctrl-C reaches this process alone, and all children end together. Linux may also share
        # cores among sessions: a client in the session of a busy process would read whole responses late.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_locust(
    host: str, seconds: float, stop_seconds: float, report: Path, options: Sequence[str]
) -> tuple[int | None, dict[str, Any] | None]:
    """Runs the load tests' locustfile; its log lies beside the report.

    Args:
        report: JSON file to write; an old one is removed first.

    Returns:
        The exit status, None if Locust did not end in time; and the report, None if there is none.
    """
    report.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "locust", "--headless", "--only-summary", "-f", "loadtests/locustfile.py"),
        *("--host", host, "-t", f"{seconds:.0f}s", "--stop-timeout", f"{stop_seconds:.0f}"),
        *("--report", str(report), *options),
    ]
    status = None
    with child(command, report.with_suffix(".log")) as locust, contextlib.suppress(subprocess.TimeoutExpired):
        status = locust.wait(_START_SECONDS + seconds + stop_seconds)
    with contextlib.suppress(OSError, ValueError):
        return status, json.loads(report.read_text())
    return status, None


def last_line(log_path: Path) -> str:
    """The last line of a log; empty if there is none."""
    lines = log_path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
