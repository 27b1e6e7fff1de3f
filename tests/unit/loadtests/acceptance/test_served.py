"""How servers end, with a small stand-in for the `vllm` command."""

import dataclasses
import sys
from pathlib import Path

import pytest
from rich.console import Console

from loadtests.acceptance.served import Ending, WatchedServer, ending_check

SOUND = Ending(exit_status=0, seconds=2.0, processes=3, left=(), ports=(8000,), open_ports=())
# Its child ends with it, or not.
SCRIPT = """
import signal, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def end(number, frame):
    if {orderly}:
        child.kill()
        child.wait()
    sys.exit({status})
signal.signal(signal.SIGTERM, end)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class ScriptServer(WatchedServer):
    """A server whose process runs a Python script instead of vLLM."""

    def __init__(self, folder: Path, *, orderly: bool = True, status: int = 0) -> None:
        super().__init__("some/model", timeout=30.0, log_path=folder / "log", console=Console(quiet=True))
        self._script = SCRIPT.format(orderly=orderly, status=status)

    def command(self) -> list[str]:
        return [sys.executable, "-c", self._script, str(self.port)]


def test_an_orderly_end_is_one(tmp_path: Path) -> None:
    with ScriptServer(tmp_path) as server:
        assert len(server.processes()) == 2
        ending = server.terminate(within=10.0)
    assert (ending.exit_status, ending.processes, ending.left) == (0, 2, ())
    assert ending.ports == (server.port,)
    assert ending.open_ports == ()
    assert ending.seconds < 10
    assert ending_check("server", ending).passed


def test_what_stays_behind_is_named(tmp_path: Path) -> None:
    with ScriptServer(tmp_path, orderly=False, status=3) as server:
        child = server.processes()[1]
        ending = server.terminate(within=0.5)
        assert child.is_running()
    assert ending.exit_status == 3
    assert len(ending.left) == 1
    assert "left after" in ending_check("server", ending).figures


@pytest.mark.parametrize(
    "change", [{"exit_status": 1}, {"exit_status": None}, {"left": ("VLLM::Worker",)}, {"open_ports": (8000,)}]
)
def test_any_other_end_fails(change: dict[str, object]) -> None:
    assert ending_check("server", SOUND).passed
    assert not ending_check("server", dataclasses.replace(SOUND, **change)).passed  # type: ignore[arg-type]
