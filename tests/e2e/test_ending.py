"""Tests the answers to open requests when a server is stopped without `--shutdown-timeout`."""

import math
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.conftest import MAX_MODEL_LEN, OPTIONS
from tests.e2e.watched import WatchedServer
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.e2e

SECONDS, NUM_OUTPUTS = 30.0, 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    """A server that this module stops."""
    path = tmp_path_factory.mktemp("ending") / "plugin.yaml"
    path.write_text("proposer: {method: suffix}\n")
    with WatchedServer(model_path("target"), str(path), extra_args=OPTIONS) as server:
        yield server


class Request(threading.Thread):
    """A request that is too long to be complete at the stop.

    Attributes:
        lines: lines of the response so far.
        has_begun: set with the first line.
        seconds: time of the response's end; None if it has not ended.
    """

    def __init__(self, server: WatchedServer, *, stream: bool) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.status, self.seconds = 0, math.inf
        self.has_begun = threading.Event()
        self._url = f"{server.base_url}/v1/completions"
        # Of four outputs without drafts none is complete before the stop.
        body = {
            "prompt": [5, 6, 7],
            "max_tokens": MAX_MODEL_LEN - 8,
            "n": NUM_OUTPUTS,
            "ignore_eos": True,
            "stream": stream,
        }
        self._body = body | {"model": server.model, "vllm_xargs": {"spec": "off"}}

    def run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=120, trust_env=False) as response:
            self.status = response.status_code
            for line in response.iter_lines():
                self.lines.append(line)
                self.has_begun.set()
        self.seconds = time.monotonic()


def num_running(server: WatchedServer) -> float:
    """Returns the number of sequences that the engine computes."""
    lines = httpx.get(f"{server.base_url}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running{"))


def test_open_requests_end_at_once_with_an_error_and_the_server_with_status_0(server):
    plain, stream = Request(server, stream=False), Request(server, stream=True)
    stream.start()
    assert stream.has_begun.wait(60)
    plain.start()
    deadline = time.monotonic() + 60
    while num_running(server) < 2 * NUM_OUTPUTS:
        assert time.monotonic() < deadline, "both requests do not run at a time"
        time.sleep(0.05)
    start = time.monotonic()
    ending = server.terminate(SECONDS)
    for request in (plain, stream):
        request.join(1)
        assert request.seconds - start < SECONDS, "the response does not end"
        assert "stopped before the response was complete" in "".join(request.lines)
    assert plain.status == 503
    assert stream.lines[-2:] == ["data: [DONE]", ""]
    assert (ending.exit_status, ending.left, ending.open_ports) == (0, (), ())
