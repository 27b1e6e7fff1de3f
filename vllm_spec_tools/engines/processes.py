"""Processes that run engines: each in a session of its own, with a log."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class LoggedProcess(subprocess.Popen[bytes]):
    """A process whose output goes to a file.

    In a session of its own, Ctrl-C reaches us alone, and all that it starts can be ended at once.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, stdin: int = subprocess.DEVNULL
    ) -> None:
        """Starts it; an existing log is replaced."""
        self._log = log
        with log.open("wb") as file:
            streams = {"stdin": stdin, "stdout": file, "stderr": subprocess.STDOUT}
            super().__init__(command, **streams, env=environment, start_new_session=True)  # type: ignore[call-overload]

    @property
    def log(self) -> str:
        """Reads the output so far, with that of the processes it started."""
        return self._log.read_text(errors="replace")

    def end(self, grace: float = 0.0) -> bool:
        """Ends it and every process it started; returns whether it ended by itself, within `grace` seconds."""
        is_late = False
        try:
            if grace and self.poll() is None:
                # Only the parent is told: it then ends its children in order, without a traceback from each.
                self.terminate()
                self.wait(grace)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            self._kill_group()
        return not is_late

    def _kill_group(self) -> None:
        """Kills what is left of the group and waits until it is gone."""
        # In a container without an init, dead processes stay listed: the wait is bounded.
        deadline = time.monotonic() + 0.5
        try:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            self.wait()


def quoted_lines(lines: Sequence[str]) -> str:
    """Lines of a log, for messages."""
    return "\n".join(f"  | {line}" for line in lines) or "  (it wrote nothing)"
