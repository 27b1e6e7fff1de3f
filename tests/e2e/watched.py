"""A served engine: its processes, its end and its log."""

import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from vllm_spec_tools.engines.serving import HOST, Server, ServerError

_GRACE = 30.0
# vLLM names the process first: "(EngineCore pid=7) ERROR 11-22 01:02:03 [core.py:1] ...".
# A proposer's fault is a warning, with its traceback.
_BAD = re.compile(r"^(?!(\([^)]*\) )?WARNING\b)((\([^)]*\) )?(ERROR|CRITICAL)\b|.*Traceback \(most recent call last\))")
# vLLM 0.32 ends its engine before the task that waits for it, which may then log the engine's death, with or without
# this project (https://github.com/vllm-project/vllm/issues/48745).
_ENDING, _WAITING, _DEATH = "[shutdown] API server: shutdown triggered", "[async_llm.py:", "EngineDeadError"
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Ending:
    """A server's end after SIGTERM.

    Attributes:
        exit_status: exit status of the leader; None if it did not end in time.
        seconds: time until all processes were gone, or until the deadline.
    """

    exit_status: int | None
    seconds: float
    processes: int
    left: tuple[str, ...]
    ports: tuple[int, ...]
    open_ports: tuple[int, ...]


class WatchedServer(Server):
    """A `vllm serve` with access to its processes."""

    def processes(self) -> list[psutil.Process]:
        """The server's process and all its descendants."""
        assert self._process is not None
        leader = psutil.Process(self._process.pid)
        return [leader, *leader.children(recursive=True)]

    def worker(self) -> psutil.Process:
        """The process that runs the models."""
        family = self.processes()
        # Names of processes are cut after 15 characters: VLLM::EngineCore loses its last one.
        for beginning in ("VLLM::Worker", "VLLM::EngineCor"):
            found = [process for process in family if process.name().startswith(beginning)]
            if found:
                return found[0]
        raise ServerError(f"no vLLM worker among {', '.join(process.name() for process in family)}")

    def terminate(self, within: float = _GRACE) -> Ending:
        """Sends SIGTERM and waits up to `within` seconds for all processes to end."""
        assert self._process is not None
        family = self.processes()
        names = {process.pid: process.name() for process in family}
        ports = _listened_ports(family)
        start = time.monotonic()
        self._process.terminate()
        try:
            status: int | None = self._process.wait(within)
        except subprocess.TimeoutExpired:
            status = None
        while (left := [process for process in family if _is_alive(process)]) and time.monotonic() < start + within:
            time.sleep(_POLL_SECONDS)
        return Ending(
            exit_status=status,
            seconds=time.monotonic() - start,
            processes=len(family),
            left=tuple(names[process.pid] for process in left),
            ports=ports,
            open_ports=tuple(port for port in ports if _is_open(port)),
        )


def _is_alive(process: psutil.Process) -> bool:
    try:
        # A container without an init keeps dead orphans listed.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _listened_ports(processes: Sequence[psutil.Process]) -> tuple[int, ...]:
    found = (connection for process in processes for connection in process.net_connections("tcp"))
    return tuple(sorted({one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}))


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def bad_lines(text: str) -> list[str]:
    """Log lines of errors and tracebacks, without those of vLLM's own shutdown."""
    running, _, ending = text.partition(_ENDING)
    last_words = [line for line in ending.splitlines() if _BAD.search(line)]
    if any(_WAITING in line and _DEATH in line for line in last_words):
        last_words = [line for line in last_words if _WAITING not in line]
    return [line for line in running.splitlines() if _BAD.search(line)] + last_words
