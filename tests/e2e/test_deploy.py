"""A server as under the systemd unit: alerts of Debian's Prometheus, and the end of running responses at a stop.

All of it on one engine, in a read-only system with the unit's variables; the last test stops it.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.dashboard import queries
from tests.e2e.conftest import OPTIONS
from tests.prometheus import needs_prometheus, scraping
from tests.systemd_unit import USER, directives, read_only
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server

# The unit, the dashboard and the alerts are tested in tests/unit/docs without a server.
pytestmark = [pytest.mark.e2e, pytest.mark.full]

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef multiply(a, b):\n    return a * b\n\n\ndef divide(a, b):\n"
# Text that all requests without a salt draft from, which an alert tells.
CONFIG = """
proposer: {method: suffix, shared: true, shared_scope: global}
draft_length: {policy: fixed, tokens: 4}
"""
NUM_TOKENS = 900


def may_unshare() -> bool:
    """Whether this process may make file systems of its own."""
    words = ["unshare", "--mount", "mount", "-n", "-o", "remount,bind,ro", "/"]
    return shutil.which("unshare") is not None and subprocess.run(words, capture_output=True).returncode == 0


class AsUnderTheUnit(Server):
    """A server that runs in a read-only system, as another user, and stops as the unit says."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / directives()["CacheDirectory"]
        self.cache.mkdir()
        (self.cache / "plugin.yaml").write_text(CONFIG)
        os.chown(self.cache, int(USER), int(USER))
        words = directives()["ExecStart"].split()
        grace = words[words.index("--shutdown-timeout") :][:2]
        path = Path("/var/cache") / self.cache.name / "plugin.yaml"
        super().__init__(model_path("target"), path, extra_args=(*OPTIONS, *grace), timeout=600)

    def command(self) -> list[str]:
        return read_only(super().command(), self.cache)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not may_unshare():
        pytest.skip("needs root, and leave to unshare mounts")
    with AsUnderTheUnit(tmp_path_factory.mktemp("cache")) as server:
        yield server


def complete(client: openai.OpenAI, model: str, **body: object) -> None:
    client.completions.create(model=model, prompt=PROMPT, max_tokens=64, temperature=0, extra_body=body)


@needs_prometheus
def test_every_query_is_answered_and_an_alert_fires_when_it_should(server, client, model, tmp_path):
    complete(client, model, cache_salt="a")
    with scraping(tmp_path, [server.base_url.removeprefix("http://")]) as prometheus:
        for _ in range(4):
            complete(client, model, cache_salt="a")
        prometheus.wait_for("increase(vllm_spec_plugin:draft_tokens_total[1m]) > 0")
        empty = prometheus.unanswered()
        # Panels of faults, trees, waiting requests, several proposers and the policy `optimal` stay empty.
        assert len(empty) < len({query.where for query in queries()}) / 2, empty
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert not prometheus.get("alerts")["alerts"]
        complete(client, model)
        (alert,) = prometheus.wait_for('ALERTS{alertname="SpecTenantsWithoutSalt", alertstate="firing"}')
        assert alert["metric"]["instance"] in server.base_url
        assert [told["labels"]["alertname"] for told in prometheus.get("alerts")["alerts"]] == [
            "SpecTenantsWithoutSalt"
        ]


def test_compiled_code_is_kept_in_the_units_cache(server, client, model):
    complete(client, model)
    assert list(server.cache.rglob("*.nbi"))


def test_a_stream_goes_on_after_sigterm_and_the_server_ends_with_status_0(server, client, model):
    stream = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    reason = None
    for number, chunk in enumerate(stream):
        if number == 0:
            server._process.send_signal(signal.SIGTERM)
        reason = chunk.choices[0].finish_reason or reason
    assert number > 10
    assert reason == "length"
    assert server._process.wait(60) == 0
