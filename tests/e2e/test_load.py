"""A served engine under load, while its worker is paused, and at its end: `make loadtest`."""

import importlib.util
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.locust_process import last_line, run_locust
from tests.e2e.watched import WatchedServer, bad_lines
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

# test_fuzz.py has many requests at once.
pytestmark = [
    *(pytest.mark.e2e, pytest.mark.whole_machine, pytest.mark.full),
    pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra `loadtest` is not installed"),
]
CONFIG = Path(__file__).parents[2] / "configs" / "cascade.yaml"
USERS, SECONDS = (64, 90.0) if is_full() else (16, 15.0)
# Users finish their requests, so that the counts can be compared to the last token.
STOP_SECONDS, PAUSE_SECONDS = 120.0, 3.0
COUNTED_TWICE = {"requests": "succeeded", "output_tokens": "output_tokens", "prompt_tokens": "prompt_tokens"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    """A server that this module stops."""
    log = tmp_path_factory.mktemp("load") / "server.log"
    with WatchedServer(model_path("target"), str(CONFIG), log_path=log) as server:
        yield server


def pause(server: WatchedServer) -> None:
    """Stops the process that runs the models for a while, in the middle of the load."""
    time.sleep(SECONDS / 2)
    worker = server.worker()
    worker.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    worker.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("profile", ["ramp", "spike"])
def test_no_request_fails_server_and_clients_count_the_same_and_nothing_is_left(
    profile: str, server: WatchedServer, tmp_path: Path
) -> None:
    report = tmp_path / f"{profile}.json"
    pausing = threading.Thread(target=pause, args=(server,))
    pausing.start()
    options = ["--load-profile", profile, "-u", str(USERS)]
    status, found = run_locust(server.base_url, SECONDS, STOP_SECONDS, report, options)
    pausing.join()
    assert status == 0, last_line(report.with_suffix(".log"))
    assert found is not None
    clients, counted = found["all"], found["server"]
    assert clients["requests"] > USERS
    assert clients["errors"] == {}
    assert {name: counted[name] for name in COUNTED_TWICE} == {
        name: clients[own] for name, own in COUNTED_TWICE.items()
    }
    assert 0 < counted["accepted_tokens"] <= counted["draft_tokens"]
    assert {counted[name] for name in ("proposer_errors", "kv_usage", "running", "waiting")} == {0}


def test_sigterm_ends_all_processes_and_the_log_has_no_error(server: WatchedServer) -> None:
    ending = server.terminate()
    assert (ending.exit_status, ending.left, ending.open_ports) == (0, (), ())
    assert ending.ports
    assert not bad_lines(server.log_path.read_text(errors="replace"))
