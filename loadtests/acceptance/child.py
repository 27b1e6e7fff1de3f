"""Programs that are run beside a server."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def child(
    command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs in the root of the repository; it and all that it starts end with the context.

    Args:
        command: its command line.
        log_path: file for its output; replaced if it exists.
        environment: all of its variables; None is this process's.
    """
    with log_path.open("wb") as log:
        # In a session of its own: Ctrl-C reaches us alone, and its whole family can be ended at once.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
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


def last_line(log_path: Path) -> str:
    """The last line of a program's output; empty if there is none."""
    lines = log_path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
