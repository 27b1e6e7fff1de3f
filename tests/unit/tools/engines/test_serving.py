"""Starting and stopping servers, with a small stand-in for the `vllm` command; the real one is in tests/e2e."""

import os
import signal
import socket
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.processes import is_running
from vllm_spec_tools.engines import serving
from vllm_spec_tools.engines.serving import Server, ServerError

ANSWERING = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
METRICS = b'''# TYPE hits counter
hits_total{a="1"} 2.0
hits_total{a="2"} 3.0
'''
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS)
    def log_message(self, *args):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ANSWERING
QUIET_CONSOLE = Console(quiet=True)


class ScriptServer(Server):
    """A server whose process runs a Python script instead of vLLM."""

    def __init__(self, script: str, log_path: Path | None, timeout: float) -> None:
        super().__init__("some/model", timeout=timeout, log_path=log_path, console=QUIET_CONSOLE)
        self.script = script

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script, str(self.port)]


def script_server(script: str, log_path: Path | None = None, timeout: float = 30.0) -> Server:
    return ScriptServer(script, log_path, timeout)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "runs_on_cpu", lambda: True)


def test_command_leaves_vllms_defaults_on_a_gpu_and_sets_what_a_cpu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "runs_on_cpu", lambda: False)
    assert serving.serve_command("m", None, 1)[1:] == ["serve", "m", "--host", "127.0.0.1", "--port", "1"]
    monkeypatch.setattr(serving, "runs_on_cpu", lambda: True)
    command = serving.serve_command("m", "plugin.yaml", 1234, ["--enforce-eager"])
    assert Path(command[0]).name == "vllm"
    options = dict(zip(command[3:-1:2], command[4:-1:2], strict=True))
    defaults = {"--dtype": "float32", "--gpu-memory-utilization": "0.5", "--max-model-len": "auto"}
    own = {"--host": "127.0.0.1", "--port": "1234", "--speculative-config": "plugin.yaml"}
    assert options == own | defaults
    assert command[-1] == "--enforce-eager"
    for given in (["--max-model-len", "512"], ["--max-model-len=512"], ["--max_model_len", "512"]):
        command = serving.serve_command("m", None, 1, given)
        assert command[-len(given) :] == given
        assert "--max-model-len" not in command[: -len(given)]


@pytest.mark.usefixtures("on_cpu")
def test_cpu_environment_gives_the_worker_every_core_and_intels_openmp_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("VLLM_CPU_NUM_OF_RESERVED_CPU", "HF_HUB_OFFLINE", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    plain = serving.cpu_environment()
    assert (plain["VLLM_CPU_NUM_OF_RESERVED_CPU"], plain["HF_HUB_OFFLINE"]) == ("0", "1")
    assert "LD_PRELOAD" not in plain
    assert "HF_HUB_OFFLINE" not in serving.cpu_environment(offline=False)
    library = tmp_path / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    assert serving.cpu_environment()["LD_PRELOAD"] == str(library)


@pytest.mark.parametrize("script", [ANSWERING, STUBBORN], ids=["obliging", "stubborn"])
def test_stopping_leaves_no_process_behind(script: str, tmp_path: Path) -> None:
    server = script_server(script, tmp_path / "log")
    server.start()
    child = int(server.log_path.read_text().split()[1])
    assert is_running(child)
    server.stop(grace=0.3)
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)
    with socket.socket() as client:
        assert client.connect_ex((serving.HOST, server.port)) != 0


def test_own_log_is_deleted_after_a_clean_run_only() -> None:
    with script_server(ANSWERING) as server:
        assert server.log_path.exists()
    assert not server.log_path.exists()

    failing = script_server("print('no')")
    with pytest.raises(ServerError):
        failing.start()
    assert failing.log_path.exists()
    failing.log_path.unlink()


def test_server_that_dies_is_reported_with_the_cause_and_the_end_of_its_log(tmp_path: Path) -> None:
    """Also where the cause is far above the end."""
    script = "import sys\nprint('ValueError: unknown key')\nfor i in range(100): print(f'line {i} ends')\nsys.exit(3)"
    with pytest.raises(ServerError) as failure:
        script_server(script, tmp_path / "log").start()
    for part in ("exit status 3", "ValueError: unknown key", "line 99 ends", str(tmp_path / "log")):
        assert part in str(failure.value)
    assert "line 5 ends" not in str(failure.value)


def test_server_that_never_answers_is_stopped(tmp_path: Path) -> None:
    script = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    server = script_server(script, tmp_path / "log", timeout=1.5)
    with pytest.raises(ServerError, match="did not answer within"):
        server.start()
    assert not is_running(int(server.log_path.read_text()))


def test_what_cannot_be_served_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((serving.HOST, 0))
        listener.listen()
        server = Server("m", port=listener.getsockname()[1], console=QUIET_CONSOLE)
        with pytest.raises(ServerError, match="choose another"):
            server.start()
    with pytest.raises(ServerError, match="no model folder"):
        serving.serve_command(tmp_path / "none", None, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "none.yaml"), "none.yaml: no such file"),
        (("--port", "99999"), "port 99999 cannot be listened on"),
        (("--model", "/none"), "--model /none: no such folder"),
    ],
)
def test_module_refuses_wrong_options(options: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serving._exec_serve(options)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("on_cpu")
def test_module_gives_open_requests_time_to_finish_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda path, command, environment: commands.append(command))
    execute: Any = serving._exec_serve
    execute(("--port", str(serving.free_port()), "--shutdown-timeout", "5"))
    # Of an option that is given twice the last value counts.
    assert [value for word, value in pairwise(commands[0]) if word == "--shutdown-timeout"] == ["30", "5"]


def test_interrupted_start_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = script_server("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)", tmp_path / "log")

    def interrupt(seconds: float) -> None:
        if server.log_path.read_text():
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(time, "sleep", interrupt)
    # Started in the background of a shell, this process would ignore interrupts.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            server.start()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert not is_running(int(server.log_path.read_text()))
