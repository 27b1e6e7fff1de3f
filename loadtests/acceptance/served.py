"""A served engine whose processes are looked at, and its end."""

import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.serving import HOST, Server, ServerError

_GRACE = 30.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Ending:
    """How a server ended that was told to.

    Attributes:
        exit_status: its own; None if it did not end in time.
        seconds: until all its processes were gone, or nobody waited any longer.
        processes: how many there were.
        left: names of those that were still there then.
        ports: that they had listened on.
        open_ports: of these, those that are still listened on.
    """

    exit_status: int | None
    seconds: float
    processes: int
    left: tuple[str, ...]
    ports: tuple[int, ...]
    open_ports: tuple[int, ...]


def ending_check(part: str, ending: Ending) -> Verdict:
    """Whether all of a server ended in order."""
    passed = ending.exit_status == 0 and not ending.left and bool(ending.ports) and not ending.open_ports
    figures = [f"exit status {ending.exit_status}, {ending.processes} processes gone after {ending.seconds:.1f} s"]
    if ending.left:
        figures = [f"exit status {ending.exit_status}", f"left after {ending.seconds:.0f} s: {', '.join(ending.left)}"]
    if ending.open_ports:
        figures.append(f"ports still open: {', '.join(map(str, ending.open_ports))}")
    else:
        figures.append(f"{len(ending.ports)} ports free again")
    return Verdict(part, "SIGTERM ends all of the server", passed, ", ".join(figures))


class WatchedServer(Server):
    """A `vllm serve` whose processes are known."""

    def processes(self) -> list[psutil.Process]:
        """The server itself, and all that it started."""
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
        raise ServerError(f"no worker of vLLM's among {', '.join(process.name() for process in family)}")

    def terminate(self, within: float = _GRACE) -> Ending:
        """Tells the server to end, and sees whether it does.

        Args:
            within: seconds that it has.
        """
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
        # Where nobody reaps orphans (a container without an init) dead processes stay listed.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _listened_ports(processes: Sequence[psutil.Process]) -> tuple[int, ...]:
    ports = set()
    for process in processes:
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                ports.add(connection.laddr.port)
    return tuple(sorted(ports))


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0
