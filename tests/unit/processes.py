"""Looking at processes that tests start."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
