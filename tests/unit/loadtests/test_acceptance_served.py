"""Tests servers' ends, with a small stand-in for the `vllm` command, and their logs."""

import dataclasses
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.acceptance.served import Ending, WatchedServer, bad_lines, ending_check, log_check

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


SOUND_LOG = """\
(APIServer pid=7) INFO 11-22 02:13:12 [launcher.py:12] Route: /health, Methods: GET
(Worker pid=9) WARNING 11-22 02:13:12 [guard.py:99] proposer fault: method suffix, ...: RuntimeError: on purpose
(Worker pid=9) WARNING 11-22 02:13:12 [guard.py:99] Traceback (most recent call last):
INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 400 Bad Request
ERROR_RATE is 0
"""
ENDING = "(APIServer pid=7) INFO 11-22 04:07:37 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
# In vLLM 0.32, with the plugin and without.
LAST_WORDS = """\
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906]     raise self._format_exception(outputs) from None
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore
"""


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=8) ERROR 11-22 02:13:12 [core.py:1512] EngineCore encountered a fatal error.",
        "ERROR 11-22 02:13:12 [async_llm.py:906] AsyncLLM output_handler failed.",
        "ERROR:    Exception in ASGI application",
        "(Worker pid=9) CRITICAL 11-22 02:13:12 [x.py:1] out of everything",
        "Traceback (most recent call last):",
        "(Worker pid=9) Traceback (most recent call last):",
    ],
)
def test_errors_and_tracebacks_are_found(line: str) -> None:
    text = f"{SOUND_LOG}{line}\n{SOUND_LOG}"
    assert bad_lines(text) == [line]
    verdict = log_check("server", text)
    assert not verdict.passed
    assert line[:40] in verdict.figures


def test_warnings_and_refusals_are_none() -> None:
    assert bad_lines(SOUND_LOG) == []
    assert log_check("server", SOUND_LOG).passed


def test_vllm_may_log_the_death_of_an_engine_that_it_was_told_to_end() -> None:
    assert bad_lines(SOUND_LOG + ENDING + LAST_WORDS) == []


def test_no_other_death_and_no_other_error_is_forgiven() -> None:
    assert len(bad_lines(SOUND_LOG + LAST_WORDS)) == 4
    assert len(bad_lines(SOUND_LOG + LAST_WORDS + ENDING)) == 4
    other = "(EngineCore pid=8) ERROR 11-22 04:07:37 [core.py:1512] EngineCore encountered a fatal error."
    assert bad_lines(f"{ENDING}{LAST_WORDS}{other}\n") == [other]
    without_death = LAST_WORDS.replace("EngineDeadError", "KeyError")
    assert len(bad_lines(ENDING + without_death)) == 4
