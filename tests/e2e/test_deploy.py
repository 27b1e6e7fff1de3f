"""Debian's Prometheus scrapes a served engine with the configuration and rules of `deploy/`."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.dashboard import queries
from tests.e2e.conftest import OPTIONS, connect, served_model
from tests.prometheus import needs_prometheus, scraping
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.serving import Server

pytestmark = [pytest.mark.e2e, needs_prometheus]

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef multiply(a, b):\n    return a * b\n\n\ndef divide(a, b):\n"
# Text that all requests without a salt draft from, which an alert tells.
CONFIG = """
proposer: {method: ngram, shared: true, shared_scope: global}
draft_length: {policy: fixed, tokens: 4}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    path = tmp_path / "plugin.yaml"
    path.write_text(CONFIG)
    with Server(model_path("target"), path, extra_args=OPTIONS) as server:
        yield server


def complete(client: openai.OpenAI, model: str, **body: object) -> None:
    client.completions.create(model=model, prompt=PROMPT, max_tokens=64, temperature=0, extra_body=body)


def test_every_query_is_answered_and_an_alert_fires_when_it_should(server, tmp_path):
    client = connect(server)
    model = served_model(client)
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
