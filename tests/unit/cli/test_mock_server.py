"""`vllm-spec mock-server`: it serves, ends when told to, and says what is wrong."""

import signal
import socket
import subprocess
import sys

import httpx
import pytest
from typer.testing import CliRunner

from vllm_spec_tools.cli import app


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(number: signal.Signals) -> None:
    program = "from vllm_spec_tools.cli import app; app()"
    command = [sys.executable, "-u", "-c", program, "mock-server", "--port", "0", "--ttft-ms", "0", "--model", "m"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.split()[0]
            assert line == f"{url} serves 'm', a mock. Press Ctrl-C to stop.\n"
            body = {"model": "m", "prompt": "a", "max_tokens": 2}
            assert httpx.post(f"{url}/completions", json=body, trust_env=False).status_code == 200
            process.send_signal(number)
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_that_is_taken_is_an_error_of_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = CliRunner().invoke(app, ["mock-server", "--port", str(port)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: 127.0.0.1:{port} cannot be listened on")
    assert result.stderr.count("\n") == 1
